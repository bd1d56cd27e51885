"""Names of tables: plain where topics are, and never the same for two topics."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.names import TopicName, is_entity_name
from magnetar.lake.naming import PART_CHARS_MAX, escape, table_name

NAMES = st.text(st.sampled_from("abxAB01_-.:= %ü_x005f"), min_size=1, max_size=12)
NAMESPACES = st.text(st.sampled_from("abx_-.=:"), min_size=1, max_size=6).filter(is_entity_name)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("persistent://public/default/orders", "public__default.orders"),
        ("persistent://public/default/orders-partition-7", "public__default.orders"),
        ("persistent://a_b/c-d/Order_Events2", "a_b__c-d.Order_Events2"),
        ("persistent://public/default/my.topic", "public__default.my_x002e_topic"),
        ("persistent://public/default/a b/".rstrip("/"), "public__default.a_x0020_b"),
        ("persistent://public/default/_x", "public__default._x005f_x"),
        ("persistent://public/default/x__y", "public__default.x_x005f__x005f_y"),
        ("persistent://public/default/a_x41_", "public__default.a_x005f_x41_x005f_"),
        ("persistent://public/default/π", "public__default._x03c0_"),
        ("persistent://public/default/\U0001f600", "public__default._x1f600_"),
    ],
)
def test_known_names(topic: str, name: str) -> None:
    assert str(table_name(TopicName.parse(topic))) == name


def unescape(part: str) -> str:
    """The inverse of `escape`, but for parts that were hashed."""
    return re.sub(r"_x([0-9a-f]{4,6})_", lambda found: chr(int(found.group(1), 16)), part)


@given(NAMES)
def test_a_name_tells_its_topic(name: str) -> None:
    made = escape(name)
    assert unescape(made) == name
    assert re.fullmatch(r"[A-Za-z0-9_-]+", made)


@given(NAMESPACES, NAMESPACES, NAMESPACES, NAMESPACES)
def test_no_two_namespaces_share_a_name(tenant: str, namespace: str, other: str, another: str) -> None:
    one = table_name(TopicName.of("persistent", tenant, namespace, "t")).namespace
    two = table_name(TopicName.of("persistent", other, another, "t")).namespace
    assert (one == two) == ((tenant, namespace) == (other, another))


def test_long_names_are_hashed() -> None:
    one, two = "a" * 500 + "1", "a" * 500 + "2"
    assert len(escape(one)) <= PART_CHARS_MAX
    assert escape(one) != escape(two)
    assert escape("." * 60) != escape("." * 61)
