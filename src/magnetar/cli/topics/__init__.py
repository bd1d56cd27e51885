"""Commands about topics, subscriptions and schemas. See README.md."""
