"""Names of writes in foreachBatch."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from magnetar.spark import batches_to
from magnetar.spark.errors import OptionError
from magnetar.spark.write.batch_functions import write_id
from magnetar.spark.write.sink_options import WriteOptions

QUERY = "3c1d4a6e-5a52-4e0e-9f0a-0f4b7a9f7c11"


def test_each_write_of_each_query_has_a_name_of_its_own() -> None:
    totals, late = TopicName.parse("totals"), TopicName.parse("tenant/space/" + "x" * 300)
    names = [
        write_id(query, topic, name)
        for query in (QUERY, "")
        for topic in (totals, late)
        for name in ("a", "b")
    ]
    names += [write_id(QUERY, totals, "")]
    assert len(set(names)) == len(names)
    for name in names:
        given = {"service.url": "pulsar://localhost:6650", "topic": "t", "writeId": name}
        assert WriteOptions.parse(given).write_id == name
    assert write_id(QUERY, totals, "a") == names[0], "the same after a restart"


def test_what_is_refused() -> None:
    with pytest.raises(OptionError, match="give name"):
        write_id("", TopicName.parse("totals"), "")
    with pytest.raises(OptionError, match="writeId is derived"):
        batches_to("totals", options={"writeId": "mine"})
    with pytest.raises(OptionError, match="batches_to"):
        batches_to("a/b")
