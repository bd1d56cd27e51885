"""A small blocking client of the admin API. See README.md."""
