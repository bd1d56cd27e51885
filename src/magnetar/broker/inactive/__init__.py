"""Topics that nobody uses are deleted."""
