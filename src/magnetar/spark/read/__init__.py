"""Topics as DataFrames. See README.md."""
