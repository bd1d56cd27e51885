"""Which producers may publish to a topic: access modes and the topic epoch."""
