"""The metadata store: what every role coordinates through. See README.md."""
