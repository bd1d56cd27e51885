"""Routes about tenants and resource groups. See README.md."""
