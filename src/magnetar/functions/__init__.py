"""Functions: user code that runs beside the broker on the messages of topics. See README.md."""
