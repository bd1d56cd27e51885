"""Writes the batches of a streaming query from `foreachBatch`, each exactly once, under derived names.

`foreachBatch` does what a sink alone cannot: several targets for one batch, upserts elsewhere in addition to
a topic, results in the mode update. Each write in it needs a unique name that survives a restart: the query's
id, which its checkpoint keeps, with the topic's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID: Final = "sql.streaming.queryId"


def batches_to(
    topic: str, *, name: str = "", options: Mapping[str, str] | None = None, **more: str
) -> Callable[[DataFrame, int], None]:
    """Returns a function for `foreachBatch` that writes each batch to the topic exactly once.

    Args:
        topic: its name.
        name: distinguishes several writes of one query to the same topic. Required, and unique among queries,
            when Spark does not give the query's id, as in Spark Connect.
        options: those of the sink.
        more: the same, with `_` for dots: `service_url="pulsar://localhost:6650"`.

    Raises OptionError; the returned function raises OptionError, SparkSourceError, ClientError.
    """
    try:
        target = TopicName.parse(topic)
    except InvalidTopicNameError as error:
        raise OptionError(f"batches_to: {error}") from error
    given = {**(options or {}), **{key.replace("_", "."): text for key, text in more.items()}}
    for key in given:
        if key.lower() in ("writeid", "batchid", "txnappid", "txnversion", "topic"):
            raise OptionError(f"batches_to: {key} is derived; leave it out")

    def write(frame: DataFrame, batch_id: int) -> None:
        derived = {
            "topic": topic,
            "writeId": write_id(_query_of(frame), target, name),
            "batchId": str(batch_id),
        }
        frame.write.format("magnetar").mode("append").options(**given, **derived).save()

    return write


def write_id(query_id: str, target: TopicName, name: str) -> str:
    """The name of a write, of valid length, and different for each query, topic and name.

    Raises OptionError when both `query_id` and `name` are empty.
    """
    if not query_id and not name:
        raise OptionError(
            "batches_to: this Spark does not tell a function of foreachBatch its query: give name, which no"
            " other query that writes to the topic has"
        )
    whole = "\n".join((query_id, str(target), name))
    return f"{query_id or 'query'}-{sha256(whole.encode()).hexdigest()[:16]}"


def _query_of(frame: DataFrame) -> str:
    """The id of the query of this batch; empty when Spark does not give it."""
    context = getattr(frame.sparkSession, "_sc", None)
    return "" if context is None else context.getLocalProperty(_QUERY_ID) or ""
