"""Topics that store nothing: connected consumers get a message, others miss it."""
