"""A broker under loads, unloads, deletions, clients and failures of storage, in virtual time."""
