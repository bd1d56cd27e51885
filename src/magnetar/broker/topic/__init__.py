"""A topic. See README.md."""
