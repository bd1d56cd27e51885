"""Clients reach the brokers of a cluster through it. See README.md."""
