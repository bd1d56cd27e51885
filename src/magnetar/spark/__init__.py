"""Topics as tables of Spark: the data source, the sink, and a session to try them in.

spark = magnetar.spark.session("orders")
spark.read.format("magnetar").options(**{"service.url": url, "topic": "orders"}).load()
magnetar.spark.table(spark, "orders", service_url=url)
"""

from magnetar.spark.batch_functions import batches_to
from magnetar.spark.session import session
from magnetar.spark.topic_table import table

__all__ = ["batches_to", "session", "table"]
