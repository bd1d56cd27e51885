"""Limits of namespaces, topics and the broker on what a topic takes and delivers."""
