"""Messages on the command line. See README.md."""
