"""What a function is configured to do, with Pulsar's names, defaults and rules. See README.md of the room."""
