"""Processes that are members of a BookKeeper cluster. See README.md."""
