"""The managed log's ledgers over several bookies; see README.md."""
