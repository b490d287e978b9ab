"""Questions from afar, answered in processes apart: what pages and agents share."""
