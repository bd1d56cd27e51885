"""Pulsar's WebSocket API: producers, consumers and readers that speak JSON."""
