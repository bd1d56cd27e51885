"""Arrow Flight SQL: SQL over topics for tools. See README.md."""
