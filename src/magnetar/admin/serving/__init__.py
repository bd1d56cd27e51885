"""Receives calls of the admin API and sends their answers. See README.md."""
