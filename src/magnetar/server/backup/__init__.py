"""Backups of a data folder in use, and their restoring; see README.md."""
