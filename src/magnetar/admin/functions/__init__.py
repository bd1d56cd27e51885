"""Functions and packages: Pulsar's REST API v3. See README.md."""
