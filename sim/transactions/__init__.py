"""Transactions under kills, unloads, failing storage and bad manners of clients, in virtual time."""
