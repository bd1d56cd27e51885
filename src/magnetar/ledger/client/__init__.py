"""Ledgers over bookies behind sockets: the drivers of `ledger.quorum`."""
