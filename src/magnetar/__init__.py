"""Magnetar: event streaming in typed Python, compatible with Apache Pulsar at every seam."""

from magnetar import twin

__version__ = "0.1.0"

twin.choose()
