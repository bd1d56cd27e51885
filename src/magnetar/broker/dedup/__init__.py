"""Message deduplication: a producer that sends a sequence number again changes nothing."""
