"""Which of several brokers serves which bundle. See README.md."""
