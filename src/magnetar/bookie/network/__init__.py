"""The bookie that ledger clients reach over a network."""
