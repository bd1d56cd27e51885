"""Entries as bookies store them: head, digest, and the keys derived from a ledger's password.

    Entry     ledgerId i64 | entryId i64 | lastAddConfirmed i64 | length i64 | digest | payload
    LAC blob  ledgerId i64 | lac i64 | digest

`lastAddConfirmed` is the writer's when it sent the entry, `length` the payload bytes of the ledger up to and
including this entry. The digest covers the head and the payload: CRC32C as u32, CRC32 as u64, HMAC-SHA1 as 20
bytes, DUMMY as nothing. All integers are big-endian.

Copies of one entry may differ in `lastAddConfirmed`, and so in the digest: re-replication writes its own.
Only payload and length must be equal.

Source: BookKeeper protocol, entry layout and digests.
"""

from __future__ import annotations

import hmac
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, unique
from hashlib import sha1
from itertools import accumulate
from typing import Final

from magnetar.base.errors import ProtocolError
from magnetar.base.ids import LedgerId
from magnetar.wire.checksum import crc32c, crc32c_extend

HEAD: Final = struct.Struct(">qqqq")
"""ledgerId, entryId, lastAddConfirmed, length."""

HEAD_BYTES: Final = HEAD.size

KEY_BYTES: Final = 20
"""Length of a master key in bytes."""

_LAC_HEAD: Final = struct.Struct(">qq")
_CRC32C: Final = struct.Struct(">I")
_CRC32: Final = struct.Struct(">Q")


class DigestMismatchError(ProtocolError):
    """The bytes are not the entry that was asked for: damaged, too short, or another entry."""

    def __init__(self, ledger_id: LedgerId, entry_id: int, reason: str) -> None:
        super().__init__(f"entry {entry_id} of ledger {ledger_id}: {reason}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


@unique
class DigestType(Enum):
    """The digest of a ledger's entries; the value is the number in the ledger's metadata."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


def master_key(password: bytes) -> bytes:
    """The master key of a password, 20 bytes: a bookie compares it before it adds or fences. An empty
    password has a key too."""
    return sha1(b"ledger" + password, usedforsecurity=False).digest()


def mac_key(password: bytes) -> bytes:
    """The key of HMAC digests of a password, 20 bytes."""
    return sha1(b"mac" + password, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The fields of an entry whose digest was verified."""

    ledger_id: LedgerId
    entry_id: int
    last_add_confirmed: int
    """-1 when no entry was confirmed yet."""
    length_bytes: int
    """Payload bytes of the ledger up to and including this entry."""
    payload: bytes


class Digester:
    """Seals and opens entries of one ledger."""

    __slots__ = ("_ledger_id", "_mac_key", "digest_bytes", "digest_type")

    digest_type: DigestType
    digest_bytes: int
    """Length of a digest in bytes."""

    def __init__(self, ledger_id: LedgerId, digest_type: DigestType, password: bytes = b"") -> None:
        self._ledger_id = ledger_id
        self._mac_key = mac_key(password) if digest_type is DigestType.HMAC else b""
        self.digest_type = digest_type
        self.digest_bytes = _DIGEST_BYTES[digest_type]

    def seal(self, entry_id: int, last_add_confirmed: int, length_bytes: int, payload: bytes) -> bytes:
        """The bytes that stand before `payload` in an entry: head and digest."""
        head = HEAD.pack(self._ledger_id, entry_id, last_add_confirmed, length_bytes)
        return head + self._digest(head, payload)

    def seal_all(
        self, first_entry: int, last_add_confirmed: int, length_bytes: int, payloads: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        """Encodes consecutive entries from `first_entry` on; also the ledger's payload bytes up to and
        including each.

        `length_bytes`: payload bytes of the ledger before them.
        """
        lengths = list(accumulate(map(len, payloads), initial=length_bytes))[1:]
        entries: list[bytes] = []
        add = entries.append
        if self.digest_type is DigestType.CRC32C:
            ledger_id, pack_head, pack_digest = self._ledger_id, HEAD.pack, _CRC32C.pack
            for entry_id, (payload, length) in enumerate(zip(payloads, lengths, strict=True), first_entry):
                head = pack_head(ledger_id, entry_id, last_add_confirmed, length)
                add(head + pack_digest(crc32c_extend(crc32c(head), payload)) + payload)
        else:
            for entry_id, (payload, length) in enumerate(zip(payloads, lengths, strict=True), first_entry):
                add(self.seal(entry_id, last_add_confirmed, length, payload) + payload)
        return entries, lengths

    def open(self, entry: bytes, entry_id: int | None) -> LedgerEntry:
        """Verifies and decodes an entry. `entry_id` None accepts any id, for reads of the last entry.

        Raises DigestMismatchError.
        """
        payload_at = HEAD_BYTES + self.digest_bytes
        asked = -1 if entry_id is None else entry_id
        if len(entry) < payload_at:
            raise DigestMismatchError(self._ledger_id, asked, f"{len(entry)} bytes are not an entry")
        payload = entry[payload_at:]
        if entry[HEAD_BYTES:payload_at] != self._digest(entry[:HEAD_BYTES], payload):
            raise DigestMismatchError(self._ledger_id, asked, "the digest does not match")
        ledger_id, found, last_add_confirmed, length_bytes = HEAD.unpack_from(entry)
        if ledger_id != self._ledger_id or entry_id not in (None, found):
            raise DigestMismatchError(self._ledger_id, asked, f"these are the bytes of {ledger_id}:{found}")
        return LedgerEntry(ledger_id, found, last_add_confirmed, length_bytes, payload)

    def seal_lac(self, last_add_confirmed: int) -> bytes:
        """Encodes a last add confirmed with its digest."""
        head = _LAC_HEAD.pack(self._ledger_id, last_add_confirmed)
        return head + self._digest(head, b"")

    def open_lac(self, blob: bytes) -> int:
        """Verifies and decodes the blob of `seal_lac`: the last add confirmed. Raises DigestMismatchError."""
        if len(blob) != _LAC_HEAD.size + self.digest_bytes:
            raise DigestMismatchError(self._ledger_id, -1, f"{len(blob)} bytes are not a last add confirmed")
        head = blob[: _LAC_HEAD.size]
        if blob[_LAC_HEAD.size :] != self._digest(head, b""):
            raise DigestMismatchError(
                self._ledger_id, -1, "the digest of the last add confirmed does not match"
            )
        ledger_id, last_add_confirmed = _LAC_HEAD.unpack(head)
        if ledger_id != self._ledger_id:
            raise DigestMismatchError(self._ledger_id, -1, f"the last add confirmed of ledger {ledger_id}")
        return int(last_add_confirmed)

    def _digest(self, head: bytes, payload: bytes) -> bytes:
        kind = self.digest_type
        if kind is DigestType.CRC32C:
            return _CRC32C.pack(crc32c_extend(crc32c(head), payload))
        if kind is DigestType.CRC32:
            return _CRC32.pack(zlib.crc32(payload, zlib.crc32(head)))
        if kind is DigestType.HMAC:
            mac = hmac.new(self._mac_key, head, sha1)
            mac.update(payload)
            return mac.digest()
        return b""


_DIGEST_BYTES: Final = {
    DigestType.CRC32: 8,
    DigestType.HMAC: 20,
    DigestType.CRC32C: 4,
    DigestType.DUMMY: 0,
}
