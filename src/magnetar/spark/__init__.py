"""Topics as tables of Spark: the data source, the sink, and a session to try them in.

spark = magnetar.spark.session("orders")
spark.read.format("magnetar").options(**{"service.url": url, "topic": "orders"}).load()
magnetar.spark.table(spark, "orders", service_url=url)
"""

from magnetar.spark.read.topic_table import table
from magnetar.spark.session import session
from magnetar.spark.write.batch_functions import batches_to

__all__ = ["batches_to", "session", "table"]
