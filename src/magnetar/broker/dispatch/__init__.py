"""Who gets which entry: one pure dispatcher per subscription type."""
