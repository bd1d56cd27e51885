"""What a topic may take and give: limits of namespaces, topics and the broker."""
