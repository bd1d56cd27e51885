"""A subscription. See README.md."""
