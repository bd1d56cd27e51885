"""Named clusters. See README.md."""
