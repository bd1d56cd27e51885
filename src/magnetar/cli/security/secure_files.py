"""Makes the missing files of a secured broker.

    ca.pem, ca.key                       authority of the certificates below; keep the key elsewhere when done
    broker.pem, broker.key               certificate of the broker for TLS
    token-secret.key                     key that signs tokens
    tokens/ROLE.token                    a token for each role
    clients/ROLE.pem, clients/ROLE.key   a certificate for each role, in place of its token
    secure.toml                          the settings, for `magnetar standalone --config`

Existing files are never changed. Each file is written under a temporary name and linked to its place: an
interrupted run leaves whole files or none, and the next run continues. Only the owner may read the files.
"""

from __future__ import annotations

import datetime
import json
import os
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from magnetar.auth.authority import Authority, ends, names_of, new_key
from magnetar.auth.token import new_token
from magnetar.base.errors import MagnetarError

SETTINGS_FILE = "secure.toml"
METRICS_ROLE = "prometheus"
_SECRET_BYTES = 32
_CA_DAYS = 3650


class SecureFilesError(MagnetarError):
    """The files in the folder do not match, or the folder cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The requested files."""

    folder: Path
    hosts: tuple[str, ...]
    """Names and addresses under which clients reach the broker."""
    hosts_named: tuple[str, ...] = ()
    """The hosts that an existing certificate must name."""
    roles: tuple[str, ...]
    """Roles. The first may do everything; METRICS_ROLE may read the metrics."""
    listen: str = "127.0.0.1"
    days: int = 365
    """Days until certificates and tokens expire."""


@dataclass(frozen=True, slots=True)
class Made:
    """One file of the result."""

    path: Path
    new: bool
    """Whether this run makes it."""
    note: str = ""


def run(wanted: Wanted, *, now: datetime.datetime, dry: bool) -> Iterator[Made]:
    """Makes the missing files one by one; with `dry` only lists them. Raises SecureFilesError."""
    folder = wanted.folder
    if not dry:
        _folders(folder, folder / "tokens", folder / "clients")
    ca = folder / "ca.pem"
    key = yield from _key(ca, dry)
    yield from _file(ca, lambda: Authority.new(key, name="Magnetar", now=now, days=_CA_DAYS).certificate, dry)
    authority = None if dry else Authority(_read(ca), key)

    def issue(how: Callable[[Authority, bytes], bytes], path: Path) -> Iterator[Made]:
        own = yield from _key(path, dry)
        yield from _file(path, lambda: how(authority, own) if authority else b"", dry)

    broker = folder / "broker.pem"
    _check_hosts(broker, wanted.hosts_named)
    yield from issue(
        lambda signer, own: signer.for_broker(own, hosts=wanted.hosts, now=now, days=wanted.days), broker
    )
    secret = folder / "token-secret.key"
    yield from _file(secret, lambda: os.urandom(_SECRET_BYTES), dry)
    for role in wanted.roles:
        yield from _file(
            folder / "tokens" / f"{role}.token",
            lambda role=role: _token(_read(secret), role, now, wanted.days),  # type: ignore[misc]  # bound by its default
            dry,
        )
        yield from issue(
            lambda signer, own, role=role: signer.for_client(own, role=role, now=now, days=wanted.days),  # type: ignore[misc]  # bound by its default
            folder / "clients" / f"{role}.pem",
        )
    yield _settings(folder / SETTINGS_FILE, wanted, dry)


def _settings(path: Path, wanted: Wanted, dry: bool) -> Made:
    text = settings(wanted).encode()
    if path.exists():
        note = "" if _read(path) == text else "it has other settings than these options would give"
        return Made(path, False, note)
    if not dry:
        _write(path, text)
    return Made(path, True)


def settings(wanted: Wanted) -> str:
    """The text of the settings file."""
    folder = wanted.folder.absolute()
    lines = {
        "host": wanted.listen,
        # Tokens do not travel in clear text to other machines.
        "plain_host": "127.0.0.1",
        "tls_certificate": str(folder / "broker.pem"),
        "tls_key": str(folder / "broker.key"),
        "tls_ca": str(folder / "ca.pem"),
        "broker_tls_ca": str(folder / "ca.pem"),
        "authentication": "token,tls",
        "token_secret_key": str(folder / "token-secret.key"),
        "superuser_roles": wanted.roles[0],
        "metrics_roles": METRICS_ROLE,
    }
    if wanted.listen not in ("127.0.0.1", "::1", "localhost"):
        lines["advertised_address"] = wanted.hosts[0]
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
    return f"# Made by `magnetar secure init`; docs/configuration.md says what each line means.\n{text}"


def _token(secret: bytes, role: str, now: datetime.datetime, days: int) -> bytes:
    now_s = int(now.timestamp())
    token = new_token(secret, role, now_s=now_s, lasts_s=days * 86_400, token_id=uuid.uuid4().hex)
    return f"{token}\n".encode()


def _check_hosts(certificate: Path, hosts: Sequence[str]) -> None:
    """Raises SecureFilesError when an existing certificate of the broker does not name all hosts."""
    if not certificate.exists():
        return
    try:
        missing = sorted(set(hosts) - names_of(_read(certificate)))
    except ValueError as error:
        raise _no_certificate(certificate) from error
    if missing:
        raise SecureFilesError(
            f"{certificate} does not name {', '.join(missing)}: move it away with its key and run this again,"
            " which makes a new one"
        )


def _key(certificate: Path, dry: bool) -> Generator[Made, None, bytes]:
    """The key of a certificate; an existing key without a certificate is used. Raises SecureFilesError."""
    path = certificate.with_suffix(".key")
    if certificate.exists() and not path.exists():
        raise SecureFilesError(
            f"{certificate} exists and {path.name} does not: restore the key, or remove both"
        )
    yield from _file(path, new_key, dry)
    return b"" if dry else _read(path)


def _file(path: Path, content: Callable[[], bytes], dry: bool) -> Iterator[Made]:
    if path.exists():
        yield Made(path, False, _until(path))
        return
    if not dry:
        _write(path, content())
    yield Made(path, True, "" if dry else _until(path))


def _until(path: Path) -> str:
    """The end of a certificate, as text."""
    if path.suffix != ".pem":
        return ""
    try:
        return f"until {ends(_read(path)):%Y-%m-%d}"
    except ValueError as error:
        raise _no_certificate(path) from error


def _no_certificate(path: Path) -> SecureFilesError:
    return SecureFilesError(f"{path} is not a certificate in PEM: remove it, or name another folder")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SecureFilesError(f"{path} cannot be read: {error.strerror}") from error


def _folders(*folders: Path) -> None:
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SecureFilesError(
                f"{folder} cannot be created: {error.strerror}; name another folder"
            ) from error


def _write(path: Path, content: bytes) -> None:
    """Writes a new file. Raises SecureFilesError, also when another process has created it meanwhile."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename this fails when the place is taken.
            os.link(new, path)
        finally:
            new.unlink()
    except OSError as error:
        raise SecureFilesError(f"{path} cannot be written: {error.strerror}; name another folder") from error
