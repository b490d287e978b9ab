"""What users feel: requests that arrive at a planned system, served event by event by the rules of its engine."""
