"""What arrives at a server, and statistics of how it was served; it knows no model and no machine."""
