"""BookKeeper's protocol between ledger clients and bookies: codecs without sockets (see README.md)."""
