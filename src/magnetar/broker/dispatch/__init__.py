"""Chooses the consumer of each entry: one pure dispatcher per subscription type."""
