"""Published runs: read, predicted, scored, and what constants are fitted on."""
