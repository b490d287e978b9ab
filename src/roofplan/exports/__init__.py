"""What starts a plan, in the vocabulary of the software that runs it."""
