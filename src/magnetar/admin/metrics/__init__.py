"""`/metrics`. See README.md."""
