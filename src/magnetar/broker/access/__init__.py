"""Who may publish to a topic: producer access modes and the topic epoch."""
