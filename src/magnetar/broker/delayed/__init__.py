"""Messages that are to be delivered at a time of their own."""
