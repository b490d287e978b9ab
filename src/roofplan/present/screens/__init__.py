"""Answers as text. Nothing is computed here: numbers come from plans and Terms."""
