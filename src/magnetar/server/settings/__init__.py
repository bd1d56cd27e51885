"""What can be set for a process. See README.md."""
