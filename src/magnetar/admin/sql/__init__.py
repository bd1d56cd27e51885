"""SQL over HTTP. See README.md."""
