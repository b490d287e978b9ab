"""Frozen, keyword-only descriptions of what is planned. No I/O, no physics beyond counting."""
