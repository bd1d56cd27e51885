"""Tables stand for topics by their names."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from magnetar.sql.errors import UnknownTopicError
from magnetar.sql.table_names import quoted, table_of, text_literal, topic_of


@pytest.mark.parametrize(
    ("names", "topic"),
    [
        (("", "", "orders"), "persistent://public/default/orders"),
        (("acme", "sales", "orders"), "persistent://acme/sales/orders"),
        (("", "", "acme/sales/orders"), "persistent://acme/sales/orders"),
        (("", "", "persistent://acme/sales/orders"), "persistent://acme/sales/orders"),
        (("", "", "orders-partition-2"), "persistent://public/default/orders-partition-2"),
    ],
)
def test_names(names: tuple[str, str, str], topic: str) -> None:
    assert str(topic_of(*names)) == topic


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("", "sales", "orders"), "write tenant.namespace.topic"),
        (("", "", "non-persistent://public/default/x"), "store nothing"),
        (("", "", "/etc/passwd"), "no topic"),
    ],
)
def test_names_of_no_topic(names: tuple[str, str, str], reason: str) -> None:
    with pytest.raises(UnknownTopicError, match=reason):
        topic_of(*names)


def test_the_shortest_name_leads_back() -> None:
    for text in ("orders", "my-topic", 'a"b', "acme/sales/orders", "acme/sales/9"):
        topic = TopicName.parse(text)
        assert table_of(topic).count(".") == (2 if "/" in text else 0)
    assert table_of(TopicName.parse("my-topic")) == '"my-topic"'
    assert table_of(TopicName.parse("acme/sales/9")) == 'acme.sales."9"'


def test_quotes() -> None:
    assert quoted("plain_1") == "plain_1"
    assert quoted('a"b') == '"a""b"'
    assert text_literal("it's") == "'it''s'"
