"""Routes about topics. See README.md."""
