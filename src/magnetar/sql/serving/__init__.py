"""Queries that run beside a broker, each in a process of its own. See README.md."""
