"""Routes about subscriptions of a topic, or of all partitions of one. See README.md."""
