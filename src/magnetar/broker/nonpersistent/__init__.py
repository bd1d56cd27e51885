"""Topics that store nothing: who is there gets a message, who is not misses it."""
