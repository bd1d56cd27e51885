"""How a call of the admin API gets in and its answer out. See README.md."""
