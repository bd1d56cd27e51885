"""Commands about data folders, backups, object stores and tables. See README.md."""
