"""Transactions: messages to many topics and acknowledgements count together, or not at all."""
