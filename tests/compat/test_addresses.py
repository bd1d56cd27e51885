"""The official client finds the broker: by forwarded ports and listeners, from Pulsar's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from support.certificates import Authority
from support.forwarder import Forwarder
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

TIMEOUT_MS = 10_000
SECRET = b"0123456789abcdef0123456789abcdef"


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def send_and_receive(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"here")
    assert consumer.receive(TIMEOUT_MS).data() == b"here"


def test_a_forwarded_port_needs_no_setting(tmp_path: Path) -> None:
    with (
        StandaloneProcess(tmp_path, ephemeral=True) as process,
        Forwarder(port_of(process.broker_url)) as forwarder,
    ):
        client = pulsar.Client(f"pulsar://127.0.0.1:{forwarder.port}")
        send_and_receive(client, "forwarded")
        client.close()
        assert forwarder.connections >= 2, "the producer and the consumer came this way too"


def test_listeners_by_name(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "first", ephemeral=True) as first:
        # The name of a listener leads to another broker: so it shows where the client went.
        listeners = f"own:pulsar://127.0.0.1:1,other:{first.broker_url}"
        environment = {"PULSAR_PREFIX_advertisedListeners": listeners}
        with StandaloneProcess(tmp_path / "second", ephemeral=True, environment=environment) as second:
            client = pulsar.Client(second.broker_url, listener_name="other")
            send_and_receive(client, "listened")
            client.close()
            client = pulsar.Client(second.broker_url, listener_name="none", operation_timeout_seconds=3)
            with pytest.raises(pulsar.PulsarException):
                client.create_producer("listened")
            client.close()
            reader = pulsar.Client(first.broker_url)
            message = reader.create_reader("listened", pulsar.MessageId.earliest).read_next(TIMEOUT_MS)
            assert message.data() == b"here"
            reader.close()


def test_a_configuration_of_pulsars(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker")
    admin_certificate, admin_key = authority.issue("admin")
    (tmp_path / "secret").write_bytes(SECRET)
    classes = [f"org.apache.pulsar.broker.authentication.AuthenticationProvider{x}" for x in ("Tls", "Token")]
    properties = {
        "# a comment": "with = signs",
        "metadataStoreUrl": "",
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "localhost",
        "clusterName": "mine",
        "maxMessageSize": "1024000",
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "tlsTrustCertsFilePath": authority.file,
        "authenticationEnabled": "true",
        "authenticationProviders": ",\\\n    ".join(classes),
        "authorizationEnabled": "true",
        "superUserRoles": "admin",
        "tokenSecretKey": f"file://{tmp_path}/secret",
        "loadBalancerEnabled": "false",
    }
    file = tmp_path / "standalone.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with StandaloneProcess(tmp_path / "process", ephemeral=True, options=("--config", str(file))) as process:
        assert "1 have no counterpart here" in process.log_text()
        ready = json.loads((process.folder / "ready.json").read_text())
        token = jwt.encode({"alg": "HS256"}, {"sub": "admin"}, OctKey.import_key(SECRET))
        by_token = pulsar.Client(process.broker_url, authentication=pulsar.AuthenticationToken(token))
        by_certificate = pulsar.Client(
            ready["broker_tls_url"],
            authentication=pulsar.AuthenticationTLS(str(admin_certificate), str(admin_key)),
            tls_trust_certs_file_path=str(authority.file),
        )
        for client, topic in ((by_token, "token"), (by_certificate, "certificate")):
            send_and_receive(client, topic)
            client.close()
        stranger = jwt.encode({"alg": "HS256"}, {"sub": "stranger"}, OctKey.import_key(SECRET))
        client = pulsar.Client(process.broker_url, authentication=pulsar.AuthenticationToken(stranger))
        with pytest.raises(pulsar.AuthorizationError):
            client.create_producer("token")
        client.close()
