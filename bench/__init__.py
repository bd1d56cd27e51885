"""Measures a broker of the Pulsar protocol from outside: see bench/README.md."""
