"""A private certificate authority, which signs certificates for brokers and clients.

Keys are EC on P-256. A broker's certificate names its hosts (RFC 6125: only these count). A client's
certificate has its role as the single common name, which the provider `tls` reads. Serial numbers and keys
are random; all other fields depend only on the arguments.

Source: RFC 5280 (profiles of certificates); CA/Browser Forum's rules for the shape of names.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_EARLY = datetime.timedelta(hours=1)
"""Certificates are valid from an hour before their creation, for machines whose clock is a little behind."""


def new_key() -> bytes:
    """A private key, PEM (PKCS #8, not encrypted)."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def ends(certificate: bytes) -> datetime.datetime:
    """The end of validity of a certificate, PEM. Raises ValueError when the text is not a certificate."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def names_of(certificate: bytes) -> set[str]:
    """Hosts and addresses in a certificate, PEM. Raises ValueError when the text is not a certificate."""
    loaded = x509.load_pem_x509_certificate(certificate)
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority with its certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    @staticmethod
    def new(key: bytes, *, name: str, now: datetime.datetime, days: int) -> Authority:
        """A new self-signed authority, valid for `days`. It may sign certificates, but not further
        authorities."""
        loaded = _private(key)
        subject = _named(name)
        made = (
            _builder(subject, subject, loaded, now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(loaded.public_key()), critical=False)
            .sign(loaded, hashes.SHA256())
        )
        return Authority(made.public_bytes(serialization.Encoding.PEM), key)

    def for_broker(self, key: bytes, *, hosts: Sequence[str], now: datetime.datetime, days: int) -> bytes:
        """A certificate, PEM, of a broker that clients reach by these host names and addresses."""
        names = x509.SubjectAlternativeName([_general(host) for host in hosts])
        return self._issued(key, hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, names, now, days)

    def for_client(self, key: bytes, *, role: str, now: datetime.datetime, days: int) -> bytes:
        """A certificate, PEM, that proves a role."""
        return self._issued(key, role, ExtendedKeyUsageOID.CLIENT_AUTH, None, now, days)

    def _issued(
        self,
        key: bytes,
        name: str,
        purpose: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
        now: datetime.datetime,
        days: int,
    ) -> bytes:
        own, mine = x509.load_pem_x509_certificate(self.certificate), _private(self.key)
        loaded = _private(key)
        builder = (
            _builder(_named(name), own.subject, loaded, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(loaded.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(mine.public_key()), critical=False
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(mine, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _private(key: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(key, None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("it is not an EC key")
    return loaded


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
