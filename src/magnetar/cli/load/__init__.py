"""`magnetar bench`: load on a topic of a running broker, and how it fares."""
