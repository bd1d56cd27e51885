"""TLS, credentials and their files, and the exposure of a process to other machines. See README.md."""
