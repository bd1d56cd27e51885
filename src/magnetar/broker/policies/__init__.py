"""The operators' policies of clusters, tenants, namespaces and topics. See README.md."""
