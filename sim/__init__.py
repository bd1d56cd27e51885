"""Ledgers are written, fenced and recovered under faults, in virtual time (see README.md)."""
