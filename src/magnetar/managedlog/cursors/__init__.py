"""Positions and acknowledgements of a log's readers. See README.md."""
