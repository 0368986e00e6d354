"""Observers of a run: each is one file."""
