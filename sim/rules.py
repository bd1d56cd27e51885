"""The rules that simulated clients, bookies and brokers hand to the product's parts: the true ones, or a
broken one.

The files of mutations put a broken one in its place for a while.
"""

from __future__ import annotations

from magnetar.bookie.known_ledger import SERVING_RULES, ServingRules
from magnetar.broker.balance.balance_rules import RULES, BalanceRules
from magnetar.broker.ownership.ownership_rules import OWNERSHIP_RULES, OwnershipRules
from magnetar.broker.registry.registry_rules import REGISTRY_RULES, RegistryRules
from magnetar.broker.transactions.kept_log import LoggedTransactions
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.txn_rules import TXN_RULES, TxnRules
from magnetar.ledger.autorecovery.repair_rules import REPAIR_RULES, RepairRules
from magnetar.ledger.client.ledger_client import LedgerClient
from magnetar.ledger.quorum.rules import (
    READING_RULES,
    RECOVERY_RULES,
    WRITING_RULES,
    ReadingRules,
    RecoveryRules,
    WritingRules,
)
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers
from magnetar.managedlog.log_rules import LOG_RULES, LogRules
from magnetar.managedlog.logs import ManagedLogs


class RulesInForce:
    """The rules that all running stories use, and the classes of parts that they hand to others."""

    writing: WritingRules = WRITING_RULES
    recovery: RecoveryRules = RECOVERY_RULES
    reading: ReadingRules = READING_RULES
    serving: ServingRules = SERVING_RULES
    repair: RepairRules = REPAIR_RULES
    log: LogRules = LOG_RULES
    balance: BalanceRules = RULES
    ownership: OwnershipRules = OWNERSHIP_RULES
    registry: RegistryRules = REGISTRY_RULES
    txns: TxnRules = TXN_RULES
    ledger_client: type[LedgerClient] = LedgerClient
    ledgers: type[RemoteLedgers] = RemoteLedgers
    logs: type[ManagedLogs] = ManagedLogs
    txns_kept: type[LoggedTransactions] = LoggedTransactions
    parts_kept: type[KeptParts] = KeptParts
