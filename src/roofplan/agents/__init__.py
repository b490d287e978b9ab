"""Questions as tools of agents (Model Context Protocol)."""
