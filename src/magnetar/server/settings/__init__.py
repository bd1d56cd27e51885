"""Settings of processes. See README.md."""
