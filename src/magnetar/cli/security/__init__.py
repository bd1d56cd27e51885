"""Commands that make keys, tokens, users and a secured broker, and explain who may do what. See README.md."""
