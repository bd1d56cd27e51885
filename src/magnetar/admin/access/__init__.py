"""Who may call which route, grants, and what the audit says of changes. See README.md."""
