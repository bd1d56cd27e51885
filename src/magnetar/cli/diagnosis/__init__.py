"""Commands that say what is wrong and what moves. See README.md."""
