"""A metadata store for the other processes of this machine. See README.md."""
