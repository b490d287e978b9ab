"""Answers as JSON: for each command the records of its members, and the function that makes them."""
