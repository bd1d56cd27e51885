"""Options: names, synonyms, what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from magnetar.spark.errors import OptionError
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.timestamps import parse_time
from magnetar.spark.write.sink_options import WriteOptions

URL = {"service.url": "pulsar://localhost:6650"}


def test_defaults() -> None:
    options = ReadOptions.parse({**URL, "topic": "orders"})
    assert options.topics == ("persistent://public/default/orders",)
    assert options.fail_on_data_loss
    assert options.rows_per_trigger_max is None
    assert options.columns[0] == "value"
    assert options.connection.admin_url == ""


def test_names_without_regard_to_case_and_synonyms() -> None:
    options = ReadOptions.parse(
        {
            "SERVICE.URL": "http://localhost:8080",
            "subscribe": "a, t/n/b ,a",
            "maxOffsetsPerTrigger": "1_000",
            "FAILONDATALOSS": "False",
            "columns": "Value,key",
        }
    )
    assert options.topics == ("persistent://public/default/a", "persistent://t/n/b")
    assert options.rows_per_trigger_max == 1000
    assert not options.fail_on_data_loss
    assert options.columns == ("value", "key")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": "a"}, "'service.url' is missing"),
        (URL, "one of the options topic, topics"),
        ({**URL, "topic": "a", "topicsPattern": "b"}, "topic and topicsPattern are given"),
        (
            {**URL, "topic": "a", "maxRows": "1"},
            "unknown option 'maxRows'; there are admin.url",
        ),
        ({**URL, "topic": "a/b"}, "invalid topic name"),
        ({**URL, "topicsPattern": "("}, "not a regular expression"),
        ({**URL, "topic": "a", "maxRowsPerTrigger": "0"}, "whole number above 0"),
        ({**URL, "topic": "a", "maxRowsPerTrigger": "many"}, "whole number above 0"),
        ({**URL, "topic": "a", "failOnDataLoss": "no"}, "expected true or false"),
        ({**URL, "topic": "a", "columns": "value,offset"}, "no column offset"),
        ({**URL, "topic": "a", "valueFormat": "xml"}, "expected one of bytes, string, auto"),
        ({**URL, "topic": "a", "topics": "b", "subscribe": "c"}, "given twice"),
        ({**URL, "topic": "a", "startingOffset": "x"}, "did you mean 'startingOffsets'"),
        ({**URL, "topic": "a", "maxOffsetPerTrigger": "1"}, "did you mean 'maxRowsPerTrigger'"),
        ({**URL, "topic": "a", "kafka.bootstrap.servers": "h:9092"}, "give service.url"),
        ({**URL, "topic": "a", "minRowsPerTrigger": "9", "maxRowsPerTrigger": "3"}, "is more than"),
        ({**URL, "topic": "a", "maxTriggerDelay": "soon"}, "is not a duration"),
        ({**URL, "assign": "orders"}, "expected JSON"),
        ({**URL, "namespace": "a/b/c"}, "namespace"),
        (
            {**URL, "topic": "a", "valueFormat": "auto", "valueSchema": "{}"},
            "is for the formats json and avro",
        ),
        ({**URL, "topic": "a", "schemaVersion": "new"}, "expected a number"),
        ({**URL, "topic": "a", "protobufMessage": "M"}, "needed together"),
        ({**URL, "topic": "a", "encrypted": "bytes", "valueFormat": "auto"}, "needs valueFormat=bytes"),
        (
            {**URL, "topic": "a", "auth.plugin": "x.AuthenticationSasl", "auth.params": "s3"},
            "token, basic, tls",
        ),
        ({**URL, "topic": "a", "auth.token": "x", "auth.token.file": "y"}, "give only one"),
        ({**URL, "topic": "a", "auth.password": "x"}, "needs auth.user"),
        ({**URL, "topic": "a", "columnNameOfCorruptRecord": "broken"}, "is for mode=permissive"),
        (
            {**URL, "topic": "a", "mode": "permissive", "columnNameOfCorruptRecord": "Value"},
            "no column that topics have",
        ),
        ({**URL, "topic": "a", "mode": "permissive", "columnNameOfCorruptRecord": "a`b"}, "expected letters"),
        ({**URL, "topic": "a", "deadLetterTopic": "dead"}, "is for mode=permissive or mode=dropmalformed"),
        ({**URL, "topic": "a", "mode": "permissive", "deadLetterTopic": "dead"}, "other than bytes"),
        (
            {
                **URL,
                "assign": '{"a": [1]}',
                "mode": "permissive",
                "valueFormat": "auto",
                "deadLetterTopic": "a",
            },
            "would never end",
        ),
        ({"service.url": "localhost:6650", "topic": "a"}, "not a service URL"),
        ({"service.url": "pulsar://h:x", "topic": "a"}, "not a service URL"),
        ({**URL, "admin.url": "pulsar://h", "topic": "a"}, "expected http"),
    ],
)
def test_what_reading_refuses(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        ReadOptions.parse(options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({**URL, "topic": "a", "delivery": "maybe"}, "exactly_once, at_least_once"),
        ({**URL, "topic": "a", "compression": "rar"}, "no compression 'rar'"),
        ({**URL, "topic": "a", "writeId": "a b"}, "writeId"),
        ({**URL, "topic": "a", "startingOffsets": "earliest"}, "unknown option 'startingOffsets'"),
    ],
)
def test_what_writing_refuses(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        WriteOptions.parse(options)


def test_what_spark_puts_among_the_options() -> None:
    options = WriteOptions.parse({**URL, "path": "orders", "checkpointLocation": "/c"})
    assert options.topic == "persistent://public/default/orders"
    assert options.delivery == "exactly_once"


@pytest.mark.parametrize("name", ["token", "auth.token", "AUTH.TOKEN", "pulsar.client.authParams"])
def test_tokens_are_not_printed(name: str) -> None:
    options = ReadOptions.parse({**URL, "topic": "a", name: "token:very-secret"})
    assert "very-secret" not in f"{options!r} {options}"
    assert options.connection.client.read_token() == "very-secret"


def test_users_are_not_printed_with_their_passwords() -> None:
    options = WriteOptions.parse({**URL, "topic": "a", "auth.user": "me", "auth.password": "very-secret"})
    assert "very-secret" not in f"{options!r} {options}"
    assert options.connection.client.credentials() == ("basic", b"me:very-secret")


def test_token_files_are_read_where_they_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for name in (str(file), f"file:{file}", f"file://{file}"):
        options = ReadOptions.parse({**URL, "topic": "a", "auth.token.file": name})
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            assert pickle.loads(pickle.dumps(options)).connection.client.read_token() == token


def test_tls() -> None:
    files = {"tls.trustCertsFile": "ca.pem", "tls.certificateFile": "me.pem", "tls.keyFile": "me.key"}
    client = ReadOptions.parse({**URL, "topic": "a", **files}).connection.client
    assert client.tls_validate_hostname
    assert (client.tls_trust_certs_file, client.tls_certificate_file, client.tls_key_file) == tuple(
        files.values()
    )
    assert client.credentials() == ("tls", b"")
    lax = ReadOptions.parse({**URL, "topic": "a", "tls.validateHostname": "false"}).connection.client
    assert not lax.tls_validate_hostname


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1735689600000", 1735689600000),
        ("2025-01-01T00:00:00Z", 1735689600000),
        ("2025-01-01", 1735689600000),
        ("2025-01-01T01:00:00+01:00", 1735689600000),
        ("-1h", 1_000_000_000_000 - 3_600_000),
        ("-1.5m", 1_000_000_000_000 - 90_000),
        ("-7d", 1_000_000_000_000 - 7 * 86_400_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time("startingTimestamp", text, 1_000_000_000_000) == expected


@pytest.mark.parametrize("text", ["soon", "-1w", "+1h", "2025-13-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(OptionError, match="is not a time"):
        parse_time("startingTimestamp", text, 0)


@pytest.mark.parametrize(
    ("plugin", "params", "method", "data"),
    [
        ("Token", "token:very-secret", "token", b"very-secret"),
        ("Token", '{"token": "very-secret"}', "token", b"very-secret"),
        ("Basic", '{"userId": "me", "password": "very-secret"}', "basic", b"me:very-secret"),
        ("Tls", "tlsCertFile:/me.pem,tlsKeyFile:/me.key", "tls", b""),
    ],
)
def test_credentials_by_the_names_of_the_java_client(
    plugin: str, params: str, method: str, data: bytes
) -> None:
    given = {
        **URL,
        "topic": "a",
        "pulsar.client.authPluginClassName": f"org.apache.pulsar.client.impl.auth.Authentication{plugin}",
        "pulsar.client.authParams": params,
    }
    options = ReadOptions.parse(given)
    assert options.connection.client.credentials() == (method, data)
    assert "very-secret" not in f"{options!r} {options}"


def test_what_other_sources_need_is_taken_and_left() -> None:
    names = ("subscriptionPrefix", "groupIdPrefix", "pollTimeoutMs", "pulsar.reader.receiverQueueSize")
    assert ReadOptions.parse({**URL, "topic": "a", **dict.fromkeys(names, "1")}).topics


def test_partitions_as_kafka_assigns_them() -> None:
    options = ReadOptions.parse({**URL, "assign": '{"orders": [0, 2]}'})
    assert options.topics == tuple(
        f"persistent://public/default/orders-partition-{number}" for number in (0, 2)
    )


def test_columns_that_options_bring_along() -> None:
    options = ReadOptions.parse({**URL, "topic": "a", "includeHeaders": "true", "encrypted": "bytes"})
    assert options.columns[-2:] == ("headers", "encryption")
    tolerant = {**URL, "topic": "a", "mode": "permissive", "columnNameOfCorruptRecord": "_corrupt_Record"}
    assert ReadOptions.parse(tolerant).columns[-1] == "_corrupt_Record"
    named = {**tolerant, "columns": "_CORRUPT_record,value"}
    assert ReadOptions.parse(named).columns == ("_corrupt_Record", "value")
