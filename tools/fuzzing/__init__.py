"""Bytes of chance for every parser of what others send or store; see README.md."""
