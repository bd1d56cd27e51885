"""Brokers that share a namespace, under faults. See sim/README.md."""
