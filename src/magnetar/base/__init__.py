"""Values that every layer shares. Imports nothing of ours and performs no input or output."""
