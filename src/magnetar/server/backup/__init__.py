"""Copies of a data folder, made while it is used, and folders made of them; see README.md."""
