"""Keeps the load of brokers even. See README.md."""
