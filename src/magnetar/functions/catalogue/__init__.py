"""What is stored of functions: configurations, packages, uploaded files. See README.md of the room."""
