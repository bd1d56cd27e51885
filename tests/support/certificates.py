"""Certificates of a private authority, made for a test."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """Signs certificates and writes everything into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority")
        self.file = folder / "authority.pem"
        """The authority's own certificate."""
        certificate = self._signed(self._name, self._key, authority=True)
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, common_name: str, *, unit: str | None = None) -> tuple[Path, Path]:
        """Issues a certificate with its key; `unit`: the organizational unit of its subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_named(common_name, unit), key, authority=False)
        files = self._folder / f"{common_name}.pem", self._folder / f"{common_name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
    ) -> x509.Certificate:
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_FROM)
            .not_valid_after(_UNTIL)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(_usage(authority=authority), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _named(common_name: str, unit: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if unit is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name(parts)
