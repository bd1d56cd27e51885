"""Finds ledgers that lack copies and makes them anew."""
