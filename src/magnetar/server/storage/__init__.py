"""The folder that holds everything durable of a process. See README.md."""
