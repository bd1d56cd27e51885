"""Spark reads and writes topics of a broker with TLS and tokens, and shows its secrets in no text."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from pyspark.sql import SparkSession

from support.certificates import Authority
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process]

SECRET = b"0123456789abcdef0123456789abcdef"


def token(role: str) -> str:
    return jwt.encode({"alg": "HS256"}, {"sub": role}, OctKey.import_key(SECRET))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Options that lead to a topic on a broker that takes tokens over TLS only for what they may."""
    folder = tmp_path_factory.mktemp("spark-secured")
    authority = Authority(folder)
    certificate, key = authority.issue("broker")
    (folder / "secret").write_bytes(SECRET)
    settings = {
        "host": "localhost",
        "tls_certificate": str(certificate),
        "tls_key": str(key),
        "broker_tls_port": 0,
        "https_port": 0,
        "authentication": "token",
        "superuser_roles": "root",
        "token_secret_key": str(folder / "secret"),
    }
    file = folder / "secure.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    with StandaloneProcess(folder / "process", ephemeral=True, options=("--config", str(file))) as process:
        ready = json.loads((process.folder / "ready.json").read_text())
        grants = f"{ready['https_url']}/admin/v2/namespaces/public/default/permissions/reader"
        headers = {"Authorization": f"Bearer {token('root')}", "Content-Type": "application/json"}
        request = urllib.request.Request(grants, b'["consume"]', headers, method="POST")
        context = ssl.create_default_context(cafile=str(authority.file))
        urllib.request.urlopen(request, context=context).close()
        yield {
            "service.url": ready["broker_tls_url"],
            "admin.url": ready["https_url"],
            "tls.trustCertsFile": str(authority.file),
            "topic": "secured",
            "retryTimeoutMs": "2000",
        }


def test_tokens_over_tls(
    spark: SparkSession, secured: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root, reader = token("root"), token("reader")
    file = tmp_path / "token"
    file.write_text(f"{reader}\n")
    rows = spark.range(10).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    writing = rows.write.format("magnetar").options(**secured)
    writing.option("auth.token", root).mode("append").save()
    frame: Any = spark.read.format("magnetar").options(**secured).option("auth.token.file", str(file)).load()
    assert sorted(bytes(row.value) for row in frame.select("value").collect()) == [
        b"%d" % number for number in range(10)
    ]
    named = spark.read.format("magnetar").options(**secured).option("auth.token", reader).load()
    ported = (
        spark.read.format("pulsar")
        .options(**secured)
        .option("pulsar.client.authPluginClassName", "org.apache.pulsar.client.impl.auth.AuthenticationToken")
        .option("pulsar.client.authParams", f"token:{reader}")
        .load()
    )
    assert ported.count() == 10
    plans = [frame, named, ported, named.select("value").where("partition = -1")]
    shown = [plan._jdf.queryExecution().toString() for plan in plans]
    with pytest.raises(Exception, match=r"AuthorizationError|403") as refused:
        writing.option("auth.token", reader).mode("append").save()
    shown.append(str(refused.value))
    with pytest.raises(Exception, match=r"AuthenticationError|401") as wrong:
        spark.read.format("magnetar").options(**secured).option("auth.token", f"{reader}x").load().collect()
    shown += [str(wrong.value), *capfd.readouterr()]
    for secret in (root, reader, root.rpartition(".")[2], reader.rpartition(".")[2]):
        assert secret not in "\n".join(shown)
