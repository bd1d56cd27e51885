"""Options that source and sink share: the address of the cluster, and credentials.

Secrets stay in `ClientOptions`, whose `repr` hides them. The form of pulsar-spark, a class name with
parameters, is accepted too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ClientError
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.client.options import ClientOptions
from magnetar.client.service_url import ServiceUrl
from magnetar.spark.errors import OptionError
from magnetar.spark.option_values import OptionValues

SHARED_OPTIONS: Final = (
    "service.url",
    "admin.url",
    "auth.token",
    "auth.token.file",
    "auth.user",
    "auth.password",
    "auth.params",
    "auth.plugin",
    "tls.trustCertsFile",
    "tls.certificateFile",
    "tls.keyFile",
    "tls.validateHostname",
    "connectTimeoutMs",
    "requestTimeoutMs",
    "retryTimeoutMs",
)

_PLUGINS: Final = ("token", "basic", "tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the cluster is. Can be pickled to executors."""

    service_url: str
    admin_url: str
    """Empty: the host of the service URL at its usual port."""
    client: ClientOptions


def connection_options(given: OptionValues) -> ConnectionOptions:
    """Reads and checks them. Raises OptionError."""
    service_url = given.text("service.url")
    if not service_url:
        raise OptionError("option 'service.url' is missing: pulsar://host:6650 or http://host:8080")
    admin_url = given.text("admin.url")
    try:
        ServiceUrl.parse(service_url)
        if admin_url and not ServiceUrl.parse(admin_url).is_http:
            raise OptionError(f"admin.url={admin_url!r}: expected http://host:8080")
    except ClientError as error:
        raise OptionError(str(error)) from error
    default = ClientOptions()
    shown = _credentials(given)
    client = ClientOptions(
        connect_timeout_s=(given.number("connectTimeoutMs") or default.connect_timeout_s * 1000) / 1000,
        request_timeout_s=(given.number("requestTimeoutMs") or default.request_timeout_s * 1000) / 1000,
        retry_timeout_s=(given.number("retryTimeoutMs") or default.retry_timeout_s * 1000) / 1000,
        token=shown.get("token", ""),
        user=shown.get("user", ""),
        password=shown.get("password", ""),
        tls_trust_certs_file=given.text("tls.trustCertsFile"),
        tls_certificate_file=shown.get("certificate", ""),
        tls_key_file=shown.get("key", ""),
        tls_validate_hostname=given.flag("tls.validateHostname", default=True),
    )
    return ConnectionOptions(service_url=service_url, admin_url=admin_url, client=client)


def _credentials(given: OptionValues) -> dict[str, str]:
    """What is shown to the broker, by our own names or by a class of Pulsar's Java client."""
    if given.text("auth.password") and not given.text("auth.user"):
        raise OptionError("option auth.password needs auth.user")
    token, file = given.text("auth.token").removeprefix("token:"), given.text("auth.token.file")
    if token and file:
        raise OptionError("give only one of the options auth.token and auth.token.file")
    own = {
        "token": _file_token(file) if file else token,
        "user": given.text("auth.user"),
        "password": given.text("auth.password"),
        "certificate": given.text("tls.certificateFile"),
        "key": given.text("tls.keyFile"),
    }
    plugin, params = given.text("auth.plugin"), given.text("auth.params")
    if not plugin and not params:
        return own
    method = plugin.rpartition(".")[2].removeprefix("Authentication").lower() or "token"
    if method not in _PLUGINS:
        # The parameters may be a secret: they are not shown.
        raise OptionError(f"auth.plugin={plugin!r}: there are {', '.join(_PLUGINS)}")
    return own | _plugin_params(method, params)


def _plugin_params(method: str, text: str) -> dict[str, str]:
    """`text` as Pulsar's Java class for `method` reads it. It may be a secret: errors do not show it."""
    pairs: Mapping[str, object] = {}
    if text.startswith("{"):
        try:
            pairs = json.loads(text)
        except ValueError as error:
            raise OptionError(f"auth.params is not JSON: {type(error).__name__}") from None
    elif method == "tls":
        pairs = dict(part.split(":", 1) for part in text.split(",") if ":" in part)
    if method == "token":
        token = str(pairs.get("token", "")) or text.removeprefix("token:")
        return {"token": _file_token(token) if token.startswith("file:") else token}
    if method == "basic":
        if not {"userId", "password"} <= pairs.keys():
            raise OptionError('auth.params has to be {"userId": ..., "password": ...} for basic')
        return {"user": str(pairs["userId"]), "password": str(pairs["password"])}
    return {"certificate": str(pairs.get("tlsCertFile", "")), "key": str(pairs.get("tlsKeyFile", ""))}


def _file_token(file: str) -> str:
    """As the client takes it: executors read the file, whenever they connect."""
    return f"file:{file.removeprefix('file://').removeprefix('file:')}"


def topic_option(option: str, text: str) -> str:
    """The full name of a topic. Raises OptionError."""
    try:
        return str(TopicName.parse(text.strip()))
    except InvalidTopicNameError as error:
        raise OptionError(f"{option}: {error}") from error
