"""Routes about brokers and bookies. See README.md."""
