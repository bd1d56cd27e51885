"""Writes the batches of a streaming query from `foreachBatch`, each once, under names that are derived.

`foreachBatch` is for what a sink alone cannot do: several targets for one batch, upserts elsewhere beside a
topic, results in the mode update. Each write in it needs a name, which survives a restart and which no other
write has: the query's id, which its checkpoint keeps, with the topic's name.
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
    """A function for `foreachBatch` that writes each batch to the topic, exactly once.

    Args:
        topic: its name.
        name: tells this write from others of the same query to the same topic; of the query itself where
            Spark does not tell its id, as in Spark Connect.
        options: those of the sink.
        more: the same, with `_` for dots: `service_url="pulsar://localhost:6650"`.

    The function raises OptionError, SparkSourceError, ClientError. Raises OptionError.
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
    """The name of a write: as long as it may be, and different for each query, topic and name.

    Raises OptionError when nothing tells it from those of other queries.
    """
    if not query_id and not name:
        raise OptionError(
            "batches_to: this Spark does not tell a function of foreachBatch its query: give name, which no"
            " other query that writes to the topic has"
        )
    whole = "\n".join((query_id, str(target), name))
    return f"{query_id or 'query'}-{sha256(whole.encode()).hexdigest()[:16]}"


def _query_of(frame: DataFrame) -> str:
    """The id of the query whose batch this is; empty where Spark does not tell."""
    context = getattr(frame.sparkSession, "_sc", None)
    return "" if context is None else context.getLocalProperty(_QUERY_ID) or ""
