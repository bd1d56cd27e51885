"""Topics as tables of Spark: the data source, the sink, and a session to try them in.

from magnetar.spark import session

spark = session("orders")
spark.read.format("magnetar").option("service.url", "pulsar://localhost:6650").option("topic", "orders").load()
"""

from magnetar.spark.session import session

__all__ = ["session"]
