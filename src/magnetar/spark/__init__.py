"""Topics as tables of Spark: the data source, the sink, and a session to try them in.

spark = magnetar.spark.session("orders")
spark.read.format("magnetar").options(**{"service.url": url, "topic": "orders"}).load()
"""

from magnetar.spark.session import session

__all__ = ["session"]
