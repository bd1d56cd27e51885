"""Object stores by URL."""
