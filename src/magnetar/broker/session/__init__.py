"""One client connection. See README.md."""
