"""Routes about namespaces, their documents and their bundles. See README.md."""
