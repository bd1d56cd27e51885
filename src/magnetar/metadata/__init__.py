"""The metadata store, through which all roles of the system coordinate. See README.md."""
