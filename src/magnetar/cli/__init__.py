"""The command `magnetar`. See README.md."""
