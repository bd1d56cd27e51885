"""Ledgers over several bookies: the protocol's decisions, without sockets or clocks (see README.md)."""
