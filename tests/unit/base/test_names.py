"""Topic and namespace names: what parses, what prints, what is refused."""

from __future__ import annotations

import pytest

from magnetar.base.errors import MagnetarError
from magnetar.base.names import (
    InvalidNamespaceNameError,
    InvalidTopicNameError,
    NamespaceName,
    TopicName,
    decode_local,
    encode_local,
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("acme/shop/orders", "persistent://acme/shop/orders"),
        ("persistent://acme/shop/orders", "persistent://acme/shop/orders"),
        ("non-persistent://acme/shop/orders", "non-persistent://acme/shop/orders"),
        ("persistent://a-b=c:d.e_f/n/x", "persistent://a-b=c:d.e_f/n/x"),
        ("persistent://t/n/Grüße an alle! 100% ~*", "persistent://t/n/Grüße an alle! 100% ~*"),
        ("persistent://t/n/x://y", None),
        ("a://b", None),
    ],
)
def test_parses_and_prints(text: str, full: str | None) -> None:
    if full is None:
        with pytest.raises(InvalidTopicNameError):
            TopicName.parse(text)
        return
    name = TopicName.parse(text)
    assert str(name) == full
    assert TopicName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        ".",
        "persistent://public/default/..",
        "persistent://../default/t",
        "persistent://public/./t",
        "a/b",
        "a/b/c/d",
        "topic://a/b/c",
        "://a/b/c",
        "persistent://",
        "persistent://a/b",
        "persistent://a/b/",
        "persistent://a/b/c/d",
        "persistent:///b/c",
        "persistent://a//c",
        "persistent://ä/b/c",
        "persistent://a b/b/c",
        "persistent://a/b?/c",
        "persistent://a\n/b/c",
        "lone-\ud800-surrogate",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(InvalidTopicNameError) as caught:
        TopicName.parse(text)
    assert isinstance(caught.value, MagnetarError)


@pytest.mark.parametrize(
    ("local", "partition"),
    [
        ("t", -1),
        ("t-partition-0", 0),
        ("t-partition-12", 12),
        ("t-partition-2147483647", 2147483647),
        ("t-partition-2147483648", -1),
        ("t-partition-99999999999999", -1),
        ("t-partition-01", -1),
        ("t-partition--1", -1),
        ("t-partition-+1", -1),
        ("t-partition-", -1),
        ("t-partition-x", -1),
        ("t-partition-٣", -1),
        ("-partition-1", -1),
        ("t-partition-1-DLQ", -1),
        ("t-partition-1-partition-2", 2),
    ],
)
def test_partition(local: str, partition: int) -> None:
    assert TopicName.parse(local).partition == partition


def test_base_and_with_partition_are_inverse() -> None:
    name = TopicName.parse("acme/shop/orders")
    third = name.with_partition(3)
    assert str(third) == "persistent://acme/shop/orders-partition-3"
    assert third.partition == 3
    assert third.base == name
    assert name.base is name
    assert third == TopicName.parse(str(third))
    nested = third.with_partition(1)
    assert nested.base == third


@pytest.mark.parametrize(
    ("local", "encoded"),
    [
        ("plain-A.b_c*9", "plain-A.b_c*9"),
        ("a b", "a+b"),
        ("a+b", "a%2Bb"),
        ("~", "%7E"),
        ("ü", "%C3%BC"),
        ("a:b=c", "a%3Ab%3Dc"),
        ("100%", "100%25"),
        ("😀", "%F0%9F%98%80"),
        ("(!')", "%28%21%27%29"),
    ],
)
def test_local_names_are_encoded_as_java_does(local: str, encoded: str) -> None:
    assert encode_local(local) == encoded
    assert decode_local(encoded) == local


def test_log_name() -> None:
    name = TopicName.parse("persistent://t/n/a b-partition-2")
    assert name.log_name == "t/n/persistent/a+b-partition-2"
    assert TopicName.from_log_name(name.log_name) == name


def test_namespace() -> None:
    assert str(NamespaceName.parse("a/b")) == "a/b"
    assert TopicName.parse("a/b/c").namespace_name == NamespaceName("a", "b")
    for text in ("", "a", "a/b/c", "a/", "a/ü"):
        with pytest.raises(InvalidNamespaceNameError):
            NamespaceName.parse(text)
