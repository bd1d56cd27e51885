"""What each kind of value in the metadata must be, and what follows when one is damaged (pure).

The kinds are those of the table in `magnetar.metadata.keys` whose values are read. A check reads a value with
the code that a broker reads it with, so that the doctor and the broker cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.balance.last_moves import decode_moves
from magnetar.broker.policies.policies import partitions_of, unusable
from magnetar.broker.transactions.header_log import decode as decode_record
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.mirror import TopicPart
from magnetar.broker.transactions.outcomes import Outcomes
from magnetar.broker.transactions.transaction import Transaction
from magnetar.functions.catalogue.records import FunctionRecord, PackageRecord
from magnetar.ledger.ids import decode_reserved
from magnetar.ledger.ledger_metadata import decode_ledger_metadata
from magnetar.ledger.paths import ID_GENERATOR, INSTANCE_ID
from magnetar.managedlog.cursors.cursor_codec import decode_info
from magnetar.managedlog.cursors.entry_set_codec import decode as decode_entries
from magnetar.managedlog.log_metadata import decode as decode_log
from magnetar.managedlog.moved_store import decode_places
from magnetar.metadata.bookkeeper.known_ledgers import decode_known_ledgers
from magnetar.metadata.bookkeeper.racks import decode_racks
from magnetar.metadata.documents import number_of, object_of, text_of
from magnetar.schemas.pulsar_storage import decode_locator
from magnetar.schemas.storage import decode_stored
from magnetar.server.storage.cluster_losses import decode_losses

Check = Callable[[str, bytes], Sequence[str]]
"""Names the parts of a value that are ignored. Raises MagnetarError or ValueError when none of it can be
used."""

_BACKUP: Final = "restore the value from a backup (docs/backup.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueKind:
    """One kind of value."""

    name: str
    """Its path as the table in `magnetar.metadata.keys` has it."""
    check: Check
    consequence: str
    """What a broker does with a damaged one."""
    remedy: str = _BACKUP
    paths: str = ""
    """Regular expression of its paths; empty: as the name says."""
    never_empty: bool = False
    """Whether a value without bytes is damaged also when it has children. Others are parents only."""
    _pattern: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A frozen dataclass sets a derived field so.
        object.__setattr__(self, "_pattern", re.compile(self.paths or _pattern_of(self.name)))

    def has(self, path: str) -> bool:
        """Whether this is the path of such a value."""
        return self._pattern.fullmatch(path) is not None


def _pattern_of(name: str) -> str:
    parts = re.split(r"(\{[^}]*\})", re.escape(name).replace(r"\{", "{").replace(r"\}", "}"))
    return "".join(
        part if not part.startswith("{") else "[^/]+/[^/]+/[^/]+" if "." in part else "[^/]+"
        for part in parts
    )


def _object(path: str, data: bytes) -> Sequence[str]:
    object_of(path, data)
    return ()


def _number(path: str, data: bytes) -> Sequence[str]:
    number_of(path, data)
    return ()


def _decoded(decode: Callable[[bytes, str], object]) -> Check:
    def check(path: str, data: bytes) -> Sequence[str]:
        decode(data, path)
        return ()

    return check


def _parts(of: str) -> Check:
    return lambda path, data: unusable(object_of(path, data), of)


def _partitions(path: str, data: bytes) -> Sequence[str]:
    partitions_of(path, object_of(path, data))
    return ()


def _racks(path: str, data: bytes) -> Sequence[str]:
    object_of(path, data)
    decode_racks(data)
    return ()


def _schema(path: str, data: bytes) -> Sequence[str]:
    if data:  # Without bytes it ends the versions before it.
        decode_stored(path, data)
    return ()


def _locator(path: str, data: bytes) -> Sequence[str]:
    if data:
        decode_locator(path, data)
    return ()


def _ledger(path: str, data: bytes) -> Sequence[str]:
    if path == ID_GENERATOR:
        decode_reserved(data, path)
    elif path == INSTANCE_ID:
        text_of(path, data)
    else:
        decode_ledger_metadata(data, path)
    return ()


def _places(path: str, data: bytes) -> Sequence[str]:
    decode_places(data)
    return ()


def _moves(path: str, data: bytes) -> Sequence[str]:
    decode_moves(data)
    return ()


def _header(path: str, data: bytes) -> Sequence[str]:
    *_, coordinator, number = path.split("/")
    txn_id = TxnId(int(coordinator), int(number))
    Transaction(txn_id, owner="", ttl_ms=0, started_ms=0, deadline_ms=0).read(data, 0)
    return ()


def _outcomes(path: str, data: bytes) -> Sequence[str]:
    Outcomes().read(0, data)
    return ()


def _aside(path: str, data: bytes) -> Sequence[str]:
    raise ValueError("a damaged value that was put aside")


def _function(path: str, data: bytes) -> Sequence[str]:
    FunctionRecord.decode(path, data)
    return ()


def _package(path: str, data: bytes) -> Sequence[str]:
    PackageRecord.decode(path, data)
    return ()


def _hidden(path: str, data: bytes) -> Sequence[str]:
    decode_entries(data)
    return ()


_SETTINGS: Final = "set it again, or restore it from a backup (docs/backup.md)"
_POLICIES: Final = "set these policies again, or remove them; or restore the value from a backup"

KINDS: Final = (
    ValueKind(
        name="/admin/clusters/{cluster}",
        check=_object,
        consequence="the cluster cannot be shown or changed",
        remedy="`magnetar clusters update` after the value is deleted, or a backup (docs/backup.md)",
        never_empty=True,
    ),
    ValueKind(
        name="/admin/configuration",
        check=_object,
        consequence="settings that were changed at run time do not count",
        remedy=_SETTINGS,
    ),
    ValueKind(
        name="/admin/policies/{tenant}",
        check=_parts("tenant"),
        consequence="a tenant that cannot be read has no administrators and gets no namespaces; roles that"
        " are not a list give no rights",
        never_empty=True,
    ),
    ValueKind(
        name="/admin/policies/{tenant}/{namespace}",
        check=_parts("namespace"),
        consequence="topics of a namespace that cannot be read are refused; parts of it that cannot be used"
        " are ignored, and delete nothing",
        remedy=_POLICIES,
        never_empty=True,
    ),
    ValueKind(
        name="/admin/local-policies/{tenant}/{namespace}",
        check=_object,
        consequence="the groups of its bundles that should lie apart or together cannot be shown or changed",
        remedy="delete the value and set them again, or restore it from a backup (docs/backup.md)",
    ),
    ValueKind(
        name="/admin/topic-policies/{tenant}/{namespace}/{domain}/{topic}",
        check=_parts("topic"),
        consequence="the topic is refused; parts that cannot be used are ignored, and delete nothing",
        remedy=_POLICIES,
    ),
    ValueKind(
        name="/admin/local-policies/topic-policies/{...}/{topic}",
        check=_parts("topic"),
        consequence="the topic is refused; parts that cannot be used are ignored, and delete nothing",
        remedy=_POLICIES,
    ),
    ValueKind(
        name="/admin/resourcegroups/{group}",
        check=_parts("group"),
        consequence="rates of the group that cannot be used do not limit its namespaces",
        remedy=_SETTINGS,
    ),
    ValueKind(
        name="/admin/clusters/{cluster}/failureDomain/{domain}",
        check=_object,
        consequence="the failure domain cannot be shown or changed",
        remedy=_SETTINGS,
    ),
    ValueKind(
        name="/admin/clusters/{cluster}/namespaceIsolationPolicies",
        check=_object,
        consequence="which brokers a namespace is bound to is not known; running brokers keep what they know",
        remedy=_SETTINGS,
    ),
    ValueKind(
        name="/bookies",
        check=_racks,
        consequence="brokers that run keep the racks that they know; a broker on bookies does not start",
        remedy="set the racks again (`/admin/v2/bookies/racks-info`), or restore the value from a backup",
    ),
    ValueKind(
        name="/loadbalance/resource-quota/...",
        paths="/loadbalance/resource-quota/.+",
        check=_object,
        consequence="the expected load of the bundle is not known",
        remedy=_SETTINGS,
    ),
    ValueKind(
        name="/admin/partitioned-topics/{tenant}/{namespace}/{domain}/{topic}",
        check=_partitions,
        consequence="clients that ask for the topic's partitions are refused",
        remedy="restore the value from a backup; `magnetar topics list` shows the partitions that exist",
    ),
    ValueKind(
        name="/managed-ledgers/{tenant}/{namespace}/persistent/{topic}",
        check=_decoded(decode_log),
        consequence="the topic cannot be loaded; its messages stay on disk, and no ledger is deleted",
        never_empty=True,
    ),
    ValueKind(
        name="/managed-ledgers/{...}/{topic}/{cursor}",
        check=_decoded(decode_info),
        consequence="the topic cannot be loaded, as the position of the subscription is not known",
    ),
    ValueKind(
        name="/schemas/{tenant}/{namespace}/{topic}",
        paths=r"/schemas/[^/]+/[^/]+/[^/]+/\d+",
        check=_schema,
        consequence="the topic's schemas cannot be read, and its producers with a schema are refused",
    ),
    ValueKind(
        name="/magnetar/offload-places",
        check=_places,
        consequence="the broker searches the lists of topics for earlier places, and writes the value anew",
        remedy="none is needed",
    ),
    ValueKind(
        name="/magnetar/ledgers-of",
        check=_decoded(decode_known_ledgers),
        consequence="the cluster's brokers do not start: whether these bookies have its messages is unknown",
        remedy="delete the value when `--metadata` names the right bookies: the next start writes it",
    ),
    ValueKind(
        name="/magnetar/given-up",
        check=_decoded(decode_losses),
        consequence="brokers go on with the entries that they knew as given up; one that starts knows none",
        remedy="delete the value, and give the entries up again: `magnetar storage accept-loss`",
    ),
    ValueKind(
        name="/magnetar/last-moves",
        check=_moves,
        consequence="`magnetar cluster status --moves` shows nothing",
        remedy="none is needed: the next move replaces the value",
    ),
    ValueKind(
        name="/magnetar/functions/{tenant}/{namespace}/{function}",
        check=_function,
        consequence="the function does not run",
        remedy="delete the function and create it again; or restore the value from a backup",
    ),
    ValueKind(
        name="/magnetar/packages/{type}/{tenant}/{namespace}/{package}/{version}",
        check=_package,
        consequence="the package cannot be read; functions made of it have copies of their own",
        remedy="delete this version and upload it again; or restore the value from a backup",
    ),
    ValueKind(
        name="/magnetar/function-files/{path}",
        check=_package,
        consequence="the file that was uploaded under this path cannot be downloaded",
        remedy="upload it again; or restore the value from a backup",
    ),
    ValueKind(
        name="/magnetar/generation",
        check=_number,
        consequence="the broker does not start: whether this metadata is an old copy cannot be told",
    ),
    ValueKind(
        name="/magnetar/bookies-beside/{bookie}",
        check=_number,
        consequence="the broker does not start: whether the bookie's folder fits cannot be told",
    ),
    ValueKind(
        name="/magnetar/transactions/coordinators/{coordinator}",
        check=_number,
        consequence="the coordinator begins no transactions",
    ),
    ValueKind(
        name="/magnetar/transactions/headers/{coordinator}/{number}",
        check=_header,
        consequence="whether the transaction is committed is not known; its topics deliver none of their"
        " messages from its first one on",
        remedy="restore the value from a backup and restart, or give the transaction up: `magnetar"
        " transactions abort COORDINATOR NUMBER`",
    ),
    ValueKind(
        name="/magnetar/transactions/log/{record}",
        check=_decoded(lambda data, path: decode_record(data)),
        consequence="its copy is used; where both are damaged, the broker does not start",
    ),
    ValueKind(
        name="/magnetar/transactions/outcomes/{coordinator}/{page}",
        check=_outcomes,
        consequence="the outcomes of 1,024 transactions are not known: a repeated END_TXN gets not found",
    ),
    ValueKind(
        name="/magnetar/transactions/damaged-outcomes/{coordinator}/{page}-{sum}",
        check=_aside,
        consequence="outcomes of up to 1,024 transactions were lost: a repeated END_TXN gets not found",
        remedy="delete the value when no client waits for these transactions any more",
    ),
    ValueKind(
        name="/magnetar/transactions/parts/{...}/{topic}/{coordinator}-{number}",
        check=_decoded(TopicPart.read),
        consequence="the topic cannot be loaded: which of its messages belong to the transaction is unknown",
        remedy="restore the value from a backup, or give the transaction up: `magnetar transactions abort"
        " COORDINATOR NUMBER`",
    ),
    ValueKind(
        name="/magnetar/transactions/damaged-parts/{...}/{topic}/{coordinator}-{number}-{sum}",
        check=_aside,
        consequence="an operator gave it up: what the transaction acknowledged in the topic came again",
        remedy="delete the value when it is of no interest any more",
    ),
    ValueKind(
        name="/magnetar/transactions/hidden/{...}/{topic}/{ledger}",
        check=_hidden,
        consequence="the topic cannot be loaded: hidden messages of aborted transactions are unknown",
    ),
    # Behind all others: roots of BookKeeper's tree have any name.
    ValueKind(
        name="/ledgers/...",
        paths=r"/.+/(L\d+|INSTANCEID|idgen)",
        check=_ledger,
        consequence="messages in the ledger are not served or deleted; a damaged INSTANCEID keeps the broker"
        " from starting; a damaged idgen is replaced by the number in the folder of messages",
    ),
)

_LOCATOR: Final = ValueKind(
    name="/schemas/{tenant}/{namespace}/{topic}",
    paths="/schemas/[^/]+/[^/]+/[^/]+",
    check=_locator,
    consequence="the topic's schemas cannot be read, and its producers with a schema are refused",
)


def kind_of(path: str, *, adopted: bool = False) -> ValueKind | None:
    """The kind of the value at a path; None: values there are not read, or not ours. `adopted`: of a cluster
    that was Apache Pulsar's."""
    if adopted and _LOCATOR.has(path):
        return _LOCATOR
    return next((kind for kind in KINDS if kind.has(path)), None)
