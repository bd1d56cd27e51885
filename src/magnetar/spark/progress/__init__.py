"""Lag and progress of streaming queries."""

from magnetar.spark.progress.listener import LagListener

__all__ = ["LagListener"]
