"""Commands that start a process, and the settings they start with. See README.md."""
