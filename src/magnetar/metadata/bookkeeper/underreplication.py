"""The nodes and values of auto-recovery, as Apache BookKeeper has them.

    underreplication/LAYOUT                           type: "BASIC" version: 1
    underreplication/ledgers/<4 levels>/urL<id>       a ledger that lacks copies: which bookies lost them
    underreplication/locks/urL<id>                    ephemeral: a worker repairs it
    underreplication/auditorelection/V_<n>            ephemeral: the first of them is the auditor
    underreplication/disable                          auto-recovery does nothing while this node exists
    underreplication/lostBookieRecoveryDelay          seconds, decimal text
    underreplication/checkallledgersctime             when all ledgers were last checked; binary
    underreplication/placementpolicycheckctime        when their placement was
    underreplication/replicascheckctime               when all their replicas were

The four levels are the id's 64 bits in groups of 16, as four hexadecimal digits each. Values are protobuf
text where this table names no other form.

Source: BookKeeper's ZkLedgerUnderreplicationManager and ZkLedgerAuditorManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.nodes_pb2 import (
    AuditorVoteFormat,
    CheckTimeFormat,
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    UnderreplicatedLedgerFormat,
)

_MARK: Final = "urL"
_VOTE: Final = "V_"

_M = TypeVar("_M", bound=Message)


class AuditCheck(Enum):
    """The checks of all ledgers whose last time is stored; the value is the name of the node."""

    SAMPLES = "checkallledgersctime"
    """Reads the first and last entries of fragments, and random others."""
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"
    """Compares every entry that a bookie must hold with the bookie's own list."""


@dataclass(frozen=True, slots=True)
class UnderreplicatedLedger:
    """A ledger that lacks copies."""

    ledger_id: LedgerId
    replicas: tuple[str, ...]
    """Ids of the bookies that lost their copies."""
    marked_ms: int | None
    """When the ledger was marked, Unix milliseconds; None when unknown."""


class UnderreplicationPaths:
    """The paths below one tree."""

    def __init__(self, tree: BookKeeperTree) -> None:
        self.root = tree.underreplication
        self.layout = f"{self.root}/LAYOUT"
        self.ledgers = f"{self.root}/ledgers"
        self.locks = f"{self.root}/locks"
        self.election = f"{self.root}/auditorelection"
        self.vote_prefix = f"{self.election}/{_VOTE}"
        self.disable = f"{self.root}/disable"
        self.lost_bookie_delay = f"{self.root}/lostBookieRecoveryDelay"

    def ledger(self, ledger_id: LedgerId) -> str:
        """Path of the mark of a ledger."""
        levels = "/".join(f"{ledger_id >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))
        return f"{self.ledgers}/{levels}/{_MARK}{ledger_id:010d}"

    def lock(self, ledger_id: LedgerId) -> str:
        """Path of the lock of a ledger."""
        return f"{self.locks}/{_MARK}{ledger_id:010d}"

    def checked(self, check: AuditCheck) -> str:
        """Path of the time at which a check of all ledgers was last done."""
        return f"{self.root}/{check.value}"

    @staticmethod
    def ledger_id_of(name: str) -> LedgerId | None:
        """The ledger of a mark or lock, by the node's name; None for other names."""
        digits = name.removeprefix(_MARK)
        return LedgerId(int(digits)) if name.startswith(_MARK) and digits.isdigit() else None


def vote_order(name: str) -> tuple[int, str]:
    """Sort key of votes: the vote that sorts first is the auditor's."""
    digits = name.rpartition("_")[2]
    return (int(digits) if digits.isdigit() else 1 << 62, name)


def encode_layout() -> bytes:
    """Value of the LAYOUT node."""
    return _text(LedgerRereplicationLayoutFormat(type="BASIC", version=1))


def check_layout(value: bytes) -> None:
    """Raises MetadataError when the LAYOUT node names another layout than ours."""
    layout = _parse(value, LedgerRereplicationLayoutFormat())
    if (layout.type, layout.version) != ("BASIC", 1):
        raise MetadataError(f"a layout of underreplicated ledgers that is not known: {value[:80]!r}")


def encode_mark(ledger: UnderreplicatedLedger) -> bytes:
    """Value of a mark."""
    return _text(UnderreplicatedLedgerFormat(replica=ledger.replicas, ctime=ledger.marked_ms))


def decode_mark(ledger_id: LedgerId, value: bytes) -> UnderreplicatedLedger:
    """The mark of a ledger. Raises MetadataError."""
    mark = _parse(value, UnderreplicatedLedgerFormat())
    return UnderreplicatedLedger(
        ledger_id, tuple(mark.replica), mark.ctime if mark.HasField("ctime") else None
    )


def encode_lock(worker_id: str) -> bytes:
    """Value of a lock: its holder."""
    return _text(LockDataFormat(bookieId=worker_id))


def encode_vote(candidate_id: str) -> bytes:
    """Value of a vote, and of the node above them when its candidate has won."""
    return _text(AuditorVoteFormat(bookieId=candidate_id))


def decode_vote(value: bytes) -> str:
    """Id of the candidate that cast the vote. Raises MetadataError."""
    return _parse(value, AuditorVoteFormat()).bookieId


def encode_check_time(time_ms: int) -> bytes:
    """Value of a time node. `time_ms`: Unix milliseconds."""
    return CheckTimeFormat(ctime=time_ms).SerializeToString()


def decode_check_time(value: bytes) -> int:
    """Unix milliseconds, -1 for none. Raises MetadataError."""
    message = CheckTimeFormat()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise MetadataError(f"a time of auto-recovery is damaged: {error}") from error
    return message.ctime if message.HasField("ctime") else -1


def _text(message: Message) -> bytes:
    return text_format.MessageToString(message, as_utf8=False).encode()


def _parse(value: bytes, message: _M) -> _M:
    try:
        return text_format.Parse(value, message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise MetadataError(f"a value of auto-recovery is damaged: {error}") from error
