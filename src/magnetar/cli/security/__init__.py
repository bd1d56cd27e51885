"""Commands that make keys, tokens, users and a secured broker, and explain permissions. See README.md."""
