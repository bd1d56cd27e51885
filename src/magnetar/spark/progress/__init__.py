"""How far streaming queries are behind, and how they fare."""

from magnetar.spark.progress.listener import LagListener

__all__ = ["LagListener"]
