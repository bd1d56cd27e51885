"""Composes roles into processes. See README.md."""
