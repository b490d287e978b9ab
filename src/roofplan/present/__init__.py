"""Answers as people and programs read them: JSON and its schemas, screens, and pictures. Nothing is computed here."""
