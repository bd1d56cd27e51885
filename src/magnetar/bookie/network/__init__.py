"""The bookie that serves ledger clients over a network."""
