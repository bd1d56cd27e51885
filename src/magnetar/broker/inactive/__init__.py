"""Deletes topics that are not used."""
