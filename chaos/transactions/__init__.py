"""`./dev chaos transactions`: what holds of transactions while processes are killed."""
