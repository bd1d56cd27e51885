"""Finds ledgers that lack copies and restores the copies."""
