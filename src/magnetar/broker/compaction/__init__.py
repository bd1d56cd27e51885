"""Topic compaction: the last message of each key."""
