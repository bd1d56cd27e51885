"""Routes about transactions."""
