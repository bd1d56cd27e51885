"""DataFrames into topics. See README.md."""
