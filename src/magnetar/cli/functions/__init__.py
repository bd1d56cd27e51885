"""Commands on functions and packages. See README.md of `cli`."""
