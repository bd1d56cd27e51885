"""Publishing over HTTP."""
