"""One call of the admin API, as handlers see it. See README.md."""
