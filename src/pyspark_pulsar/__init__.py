"""Makes `format("pulsar")` known where no other source of that name is: Spark prefers those of the JVM."""

from magnetar.spark.source import PulsarSource as DefaultSource

__all__ = ["DefaultSource"]
