"""Magnetar: event streaming in typed Python, compatible with Apache Pulsar at every seam."""

__version__ = "0.1.0"
