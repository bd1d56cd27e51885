"""Transactions whose coordinators and topics are at several brokers, in virtual time."""
