"""What was built from which sources: an in-toto statement with SLSA provenance, in a signed DSSE envelope.

    envelope   {"payloadType": ..., "payload": base64, "signatures": [{"keyid": ..., "sig": base64}]}
    signed     "DSSEv1" SP len(type) SP type SP len(payload) SP payload      (ed25519)
    keyid      SHA-256 of the public key, DER, in hexadecimal

Source: in-toto attestation framework 1.0, SLSA provenance 1.0, DSSE 1.0.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:magnetar:release:1"


class ProvenanceError(Exception):
    """A key cannot be used, or what is there is not what was signed."""


def digest_of(file: Path) -> str:
    """SHA-256, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def statement(
    files: Sequence[Path], *, commit: str, lock: Path, builder: str, epoch_s: int, python: str
) -> dict[str, Any]:
    """`files`: the built files. `commit`: commit of the sources. `builder`: URI of the builder."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": digest_of(file)}} for file in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": epoch_s, "python": python},
                "resolvedDependencies": [
                    {"name": "sources", "digest": {"gitCommit": commit}},
                    {"name": lock.as_posix(), "digest": {"sha256": digest_of(lock)}},
                ],
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }


def private_key(pem: bytes) -> Ed25519PrivateKey:
    """Raises ProvenanceError."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise ProvenanceError("it is not a private key in PEM without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ProvenanceError("it is not an ed25519 key: openssl genpkey -algorithm ed25519 makes one")
    return key


def public_key(pem: bytes) -> Ed25519PublicKey:
    """Raises ProvenanceError."""
    try:
        key = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise ProvenanceError("it is not a public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ProvenanceError("it is not an ed25519 key")
    return key


def key_id(key: Ed25519PublicKey) -> str:
    """What tells keys apart."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def envelope(document: Mapping[str, Any], key: Ed25519PrivateKey | None) -> dict[str, Any]:
    """The statement in its envelope, signed by `key`; without a key it has no signature."""
    payload = json.dumps(document, sort_keys=True).encode()
    signatures = []
    if key is not None:
        signature = base64.b64encode(key.sign(_signed(PAYLOAD_TYPE, payload))).decode()
        signatures.append({"keyid": key_id(key.public_key()), "sig": signature})
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": signatures,
    }


def verified(document: Mapping[str, Any], key: Ed25519PublicKey, folder: Path) -> list[str]:
    """Names of the files in `folder` that the envelope vouches for. Raises ProvenanceError unless the key has
    signed it and every file is there as it was."""
    try:
        payload = base64.b64decode(document["payload"], validate=True)
        kind, signatures = document["payloadType"], [each["sig"] for each in document["signatures"]]
        if kind != PAYLOAD_TYPE or not any(_is_by(key, kind, payload, each) for each in signatures):
            raise ProvenanceError("this key has not signed it")
        subjects = {each["name"]: each["digest"]["sha256"] for each in json.loads(payload)["subject"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ProvenanceError("it is not an envelope of a statement") from error
    for name, digest in subjects.items():
        file = folder / Path(name).name
        if not file.is_file() or digest_of(file) != digest:
            raise ProvenanceError(f"{name} is not what was signed, or is not there")
    return sorted(subjects)


def _is_by(key: Ed25519PublicKey, kind: str, payload: bytes, signature: str) -> bool:
    try:
        key.verify(base64.b64decode(signature, validate=True), _signed(kind, payload))
    except (InvalidSignature, binascii.Error):
        return False
    return True


def _signed(kind: str, payload: bytes) -> bytes:
    return b" ".join([b"DSSEv1", b"%d" % len(kind), kind.encode(), b"%d" % len(payload), payload])
