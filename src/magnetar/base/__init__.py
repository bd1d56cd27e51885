"""Values that every layer shares. Imports no other room, and performs no input or output."""
