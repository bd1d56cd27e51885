"""Other brokers under the same loops."""
