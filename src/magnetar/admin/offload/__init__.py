"""Routes about history in object stores and the Iceberg tables over it. See README.md."""
