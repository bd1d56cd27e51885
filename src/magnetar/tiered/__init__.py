"""Tiered storage: sealed ledgers in an object store."""
