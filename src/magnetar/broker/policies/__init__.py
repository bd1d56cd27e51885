"""What operators decided about clusters, tenants, namespaces and topics. See README.md."""
