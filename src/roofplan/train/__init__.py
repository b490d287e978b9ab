"""Training: the memory ledger of every stage, the time of a step, and the run."""
