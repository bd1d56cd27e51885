"""TLS, credentials and their files, and what of a process is reachable from outside. See README.md."""
