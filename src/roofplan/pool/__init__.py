"""Pools of other people's machines: planned, proven over shaped links, and simulated with those who come, go and cheat."""
