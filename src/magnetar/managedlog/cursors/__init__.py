"""Where readers of a log stand. See README.md."""
