"""Questions as tools of agents (Model Context Protocol): answers cut to what an agent can read, errors as data."""
