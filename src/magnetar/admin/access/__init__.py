"""The right that each route needs, grants, and the audit of changes. See README.md."""
