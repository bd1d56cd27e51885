"""Commands about namespaces, their policies, tenants, clusters and brokers. See README.md."""
