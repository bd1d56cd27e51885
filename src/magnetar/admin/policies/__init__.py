"""Policies of namespaces and topics: one declaration each."""
