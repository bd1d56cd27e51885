"""`magnetar bench`: puts load on a topic of a running broker and measures it."""
