"""What was seen: endpoints under load, by the clock of a client."""
