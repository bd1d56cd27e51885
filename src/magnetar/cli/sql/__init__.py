"""`magnetar sql`."""
