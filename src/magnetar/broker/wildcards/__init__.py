"""Names in levels, and subscriptions to all topics that a wildcard names."""
