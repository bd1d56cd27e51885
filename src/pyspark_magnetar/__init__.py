"""Makes `spark.read.format("magnetar")` known: Spark imports every top-level module named `pyspark_*`."""

from magnetar.spark.source import MagnetarSource as DefaultSource

__all__ = ["DefaultSource"]
