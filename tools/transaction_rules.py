"""The rules of transactions, each with a mutant that breaks it: see mutate.py."""

from __future__ import annotations

from typing import Final

from mutant_rule import Rule

ORDER: Final = "unit/broker/transactions/test_order.py"
SESSIONS: Final = "unit/broker/transactions/test_sessions.py"
REPAIRED: Final = "unit/broker/transactions/test_repaired.py"
GOING_BACK: Final = "unit/broker/transactions/test_going_back.py"
COMBINED: Final = "unit/broker/transactions/test_combinations.py"
DAMAGED: Final = "unit/broker/transactions/test_damaged_values.py"
MISSING: Final = "unit/broker/transactions/test_missing.py"
KEPT: Final = "unit/broker/transactions/test_kept.py"
KEPT_LOG: Final = "unit/broker/transactions/test_kept_log.py"
HEADER_LOG: Final = "unit/broker/transactions/test_header_log.py"
BOUNDS: Final = "unit/broker/transactions/test_bounds.py"
VISIBLE: Final = "unit/managedlog/test_visible.py"
OFFLOADING: Final = "unit/tiered/test_offloading.py"
PLANNING: Final = "unit/spark/read/test_planning.py"
LOG_STATE: Final = "unit/tables/test_log_state.py"

_TXNS: Final = "broker/transactions/transactions.py"
_COORDINATOR: Final = "broker/transactions/coordinator.py"
_RESOLVING: Final = "broker/transactions/resolving.py"
_TOPIC: Final = "broker/transactions/topic_transactions.py"
_ACKS: Final = "broker/transactions/subscription_acks.py"
_PENDING: Final = "broker/transactions/pending.py"
_KEPT: Final = "broker/transactions/kept.py"
_KEPT_LOG: Final = "broker/transactions/kept_log.py"
_HEADER_LOG: Final = "broker/transactions/header_log.py"
_RECOVERY: Final = "broker/transactions/recovery.py"

TRANSACTION_RULES: Final = (
    # -- the order of writes
    Rule(
        "a topic stands in the durable header before it takes messages",
        "after a crash its messages are of no known transaction, and are read though it was aborted",
        "broker/transactions/transactions.py",
        "        if name not in txn.registered:\n",
        "        if name not in txn.partitions:\n",
        (ORDER,),
    ),
    Rule(
        "an acknowledgement is in the durable header before it is answered",
        "a commit after a crash leaves out what was acknowledged",
        "broker/transactions/transactions.py",
        (
            "            await self._save(txn)\n"
            "        except MagnetarError as error:\n"
            "            answer(error)\n"
        ),
        "            pass\n        except MagnetarError as error:\n            answer(error)\n",
        (ORDER,),
    ),
    Rule(
        "a transaction with a damaged header is unknown",
        "messages of an aborted or open transaction are delivered after its header was damaged",
        "broker/transactions/resolving.py",
        "unknown = [txn for each in self.coordinators.values() for txn in each.unknown.values()]",
        "unknown: list[Transaction] = []",
        (DAMAGED,),
    ),
    Rule(
        "all topics are searched before an unknown transaction is given up",
        "its messages in topics that were not loaded count as committed",
        "broker/transactions/resolving.py",
        "await self._search(txn, name)\n        coordinator.take_up(",
        "pass\n        coordinator.take_up(",
        (DAMAGED,),
    ),
    Rule(
        "a topic that cannot be searched stands in the header of a transaction that is given up",
        "its messages of the transaction count as committed once it can be loaded",
        "broker/transactions/resolving.py",
        "            self._concerns_unknown(txn, str(name))\n",
        "            pass\n",
        (DAMAGED,),
    ),
    Rule(
        "a damaged page of outcomes is put aside before it is overwritten",
        "outcomes that could still be read are lost",
        "broker/transactions/kept.py",
        "if data is not None\n",
        "if False\n",
        (DAMAGED,),
    ),
    Rule(
        "messages of a transaction are durable before it is decided",
        "a committed transaction lacks messages after a crash",
        "broker/transactions/transactions.py",
        "        if txn.ending is TxnState.COMMITTED and not await self._resolving.durable(txn):\n",
        "        if False:\n",
        (ORDER,),
    ),
    Rule(
        "what a topic dropped while it was unloaded is missing until it is sent again",
        "a transaction that its client ends before the receipts commits without it",
        "broker/transactions/commands.py",
        "        session.broker.transactions.missed(*producer, run, _who(session))\n",
        "        pass\n",
        (MISSING,),
    ),
    Rule(
        "a message that was lost is lost when its topic is loaded anew too",
        "a committed transaction lacks the message",
        "broker/transactions/resolving.py",
        "            txn.lost = True\n",
        "            pass\n",
        (MISSING,),
    ),
    Rule(
        "nothing is added while a transaction ends",
        "a late message is in a transaction that is decided without it, and holds readers back",
        "broker/transactions/coordinator.py",
        " or txn.ending is not None or txn.closing:\n",
        ":\n",
        (ORDER,),
    ),
    Rule(
        "a write whose outcome is not known is looked up",
        "a decided transaction can never be ended, and its topics wait",
        "broker/transactions/transactions.py",
        "            txn.doubtful = True\n",
        "            txn.doubtful = False\n",
        (ORDER,),
    ),
    Rule(
        "hidden entries are durable before the header goes",
        "aborted messages are read after a restart",
        "broker/transactions/topic_transactions.py",
        "            await self._keep_hidden(ledgers)\n",
        "",
        (REPAIRED,),
    ),
    Rule(
        "hidden entries are durable before a copy leaves them out",
        "after a crash the copy's places are given to readers as messages",
        "managedlog/visible.py",
        "        return any(ledger_id in ledgers for ledgers in self.unkept.values())\n",
        "        return False\n",
        (VISIBLE, OFFLOADING),
    ),
    Rule(
        "a copy is without what readers never get",
        "history, tables and look-ups by key show aborted messages",
        "managedlog/offloading.py",
        "        return runs if visible is None else visible.for_copy(runs)\n",
        "        return runs\n",
        (OFFLOADING,),
    ),
    Rule(
        "what is not visible is not trimmed",
        "messages are deleted before their transaction commits",
        "managedlog/visible_reading.py",
        "    return places if end is None else [*places, ledgers.previous_position(end)]\n",
        "    return places\n",
        (VISIBLE,),
    ),
    Rule(
        "what is not visible is not skipped",
        "messages expire before their transaction commits",
        "broker/subscription/read_place.py",
        "        self.acks.ack_cumulative(min(position, last_visible(self.log)))\n",
        "        self.acks.ack_cumulative(position)\n",
        (COMBINED,),
    ),
    Rule(
        "a seek has the last word",
        "a commit acknowledges what the seek brought back",
        "broker/subscription/subscription.py",
        '            await self.transactions.end("its subscription was moved")\n',
        "            pass\n",
        (SESSIONS,),
    ),
    Rule(
        "a seek takes what counts already out of the headers",
        "after a crash a commit acknowledges once more what the seek brought back",
        _TXNS,
        "            if not found and not await self._resolving.strike(topic, subscription):\n",
        "            if not found:\n",
        (KEPT,),
    ),
    Rule(
        "a topic that is loaded anew knows the headers that name its acknowledgements",
        "after a crash a commit acknowledges once more what a seek there brought back",
        _RESOLVING,
        "                    acks_of(subscription, self._abort_of)  # So that a seek strikes them.\n",
        "                    pass\n",
        (KEPT,),
    ),
    # -- numbers
    Rule(
        "numbers are set aside durably before one is given out",
        "two transactions get the same id after a restart",
        _TXNS,
        "        await self._kept.reserve(number, start + RESERVED, version)\n",
        "",
        (KEPT,),
    ),
    Rule(
        "numbers go on behind those that an earlier process set aside",
        "two transactions get the same id after a restart",
        _RECOVERY,
        "    coordinator.next_sequence = coordinator.reserved\n",
        "",
        (KEPT,),
    ),
    # -- headers
    Rule(
        "a topic is answered for once it is durable",
        "its client sends messages that no header names",
        _TXNS,
        (
            "        self._resolving.concerns(txn, [str(name) for _, name in names])\n"
            "        await self._save(txn)\n"
        ),
        "        self._resolving.concerns(txn, [str(name) for _, name in names])\n",
        (ORDER,),
    ),
    Rule(
        "a header is written where it is as it was read",
        "a coordinator that was replaced takes back what was decided",
        _KEPT_LOG,
        "                if actual != each.expected or first.txn_id in begun:\n",
        "                if first.txn_id in begun:\n",
        (KEPT_LOG,),
    ),
    Rule(
        "a record of the log is written where none is",
        "two processes decide a transaction in two ways",
        _KEPT_LOG,
        "Put(path, data, MUST_NOT_EXIST)",
        "Put(path, data)",
        (KEPT_LOG,),
    ),
    Rule(
        "a record that got no answer is looked for before the next one",
        "no header is written any more, or one that is durable is not known",
        _KEPT_LOG,
        "        while self.in_doubt:\n",
        "        while False:\n",
        (KEPT_LOG,),
    ),
    Rule(
        "records go from the beginning of the log only",
        "a header that was replaced or is gone comes back after a restart",
        _HEADER_LOG,
        "first = takewhile(",
        "first = filter(",
        (HEADER_LOG,),
    ),
    Rule(
        "a header is needed as long as a later record only says that it is committed",
        "a committed transaction has a damaged header after a restart",
        _HEADER_LOG,
        "            if text == COMMITTED and txn_id in self._places:\n",
        "            if text == GIVEN_UP and txn_id in self._places:\n",
        (HEADER_LOG,),
    ),
    Rule(
        "a log with a hole is not used",
        "transactions that were decided or aborted count as never begun, and their messages as committed",
        _KEPT_LOG,
        "        if number != before + 1:\n",
        "        if number < before:\n",
        (KEPT_LOG,),
    ),
    Rule(
        "an acknowledgement that could not be stored ends its transaction",
        "a commit counts what the client was told is not acknowledged",
        _TXNS,
        '            await self._abort(txn, f"an acknowledgement could not be stored: {error}")\n',
        "            pass\n",
        (ORDER,),
    ),
    Rule(
        "a commit fails where a message of it never became durable",
        "a committed transaction lacks messages",
        _RESOLVING,
        "        return not (txn.lost or txn.missing)\n",
        "        return not txn.missing\n",
        (KEPT,),
    ),
    Rule(
        "a decision is durable before it is followed",
        "messages are read, and gone after a crash",
        _TXNS,
        ("        try:\n            version = await self._kept.save(txn)\n"),
        (
            "        try:\n"
            "            for name in txn.partitions if verdict is TxnState.COMMITTED else ():\n"
            "                topic = self.topics[name]\n"
            "                assert topic.transactions is not None\n"
            "                topic.transactions.spans.committed(txn.id)\n"
            "                [each.pump() for each in topic.subscriptions.values()]\n"
            "            version = await self._kept.save(txn)\n"
        ),
        (ORDER,),
    ),
    Rule(
        "an end is answered once it is durable",
        "a client hears of a commit that is none after a crash",
        _TXNS,
        "            coordinator.decide(txn)\n            await self._save(txn)\n",
        "            coordinator.decide(txn)\n            self._broker.tasks.spawn(self._save(txn))\n",
        (ORDER,),
    ),
    Rule(
        "an end that failed is tried until it is done",
        "a transaction whose client is gone is never ended, and holds readers back",
        _TXNS,
        'ended: %s", txn.id, error)\n            self._end_again(coordinator, txn)\n',
        'ended: %s", txn.id, error)\n',
        (ORDER,),
    ),
    Rule(
        "the other end is refused",
        "a transaction that was committed is told to be aborted",
        _COORDINATOR,
        "            if known is not wanted:\n",
        "            if False:\n",
        (SESSIONS,),
    ),
    # -- after the decision
    Rule(
        "cursors are durable before the header goes",
        "acknowledged messages come again after a crash",
        _TOPIC,
        "        await subscription.cursor.flush()\n",
        "",
        (KEPT,),
    ),
    Rule(
        "an outcome is durable before its header goes",
        "a client that asks again hears that its transaction is not known",
        _KEPT,
        "        for number in sorted(pages):\n",
        "        for number in ():\n",
        (KEPT,),
    ),
    Rule(
        "a topic is through with a decision when that is durable there",
        "the header goes first, and aborted messages are read after a crash",
        _RESOLVING,
        "            await part.keep(txn)\n",
        "            self._resolve(txn, name)\n            await part.keep(txn)\n",
        (KEPT,),
    ),
    Rule(
        "headers that are gone are left out of the next try",
        "no header goes any more once an answer was lost",
        _RESOLVING,
        "            self._swept_in_vain = True\n",
        "            pass\n",
        (ORDER,),
    ),
    Rule(
        "hidden entries go with their topic",
        "a topic that is made anew hides messages, where its ledgers get the same numbers",
        _TXNS,
        "            await self._kept.forget_topic(log_name)\n",
        "            pass\n",
        (ORDER,),
    ),
    Rule(
        "hidden entries go with their ledger",
        "the store grows with every abort for ever",
        _TOPIC,
        "        await self._kept.forget_hidden(self._log.name, gone)\n",
        "        del gone\n",
        (KEPT,),
    ),
    # -- acknowledgements
    Rule(
        "a transaction acknowledges so much at most",
        "its header grows until it can be written no more",
        _ACKS,
        "        if named + len(event.positions) + len(event.batch_acks or ()) > ACKS_MAX:\n",
        "        if False:\n",
        (BOUNDS,),
    ),
    Rule(
        "an entry that is acknowledged is in no transaction",
        "a message counts twice",
        _PENDING,
        (
            "        if cursor.is_acked(position):\n"
            '            raise TransactionConflictError(f"{position} is acknowledged already")\n'
            "\n"
            "    def _admit_part"
        ),
        "\n    def _admit_part",
        (SESSIONS,),
    ),
    Rule(
        "an entry is in one transaction at most",
        "a message counts in two transactions",
        _PENDING,
        "        if holder is not None or others or self._is_before_upto(position, txn_id):\n",
        "        if others or self._is_before_upto(position, txn_id):\n",
        (SESSIONS,),
    ),
    Rule(
        "an entry of which another transaction has messages is not acknowledged as a whole",
        "a message counts in two transactions",
        _PENDING,
        "        if holder is not None or others or self._is_before_upto(position, txn_id):\n",
        "        if holder is not None or self._is_before_upto(position, txn_id):\n",
        (BOUNDS,),
    ),
    Rule(
        "an entry before what another transaction acknowledges is in that one",
        "a message counts in two transactions",
        _PENDING,
        "        return upto is not None and self._upto != txn_id and position <= upto\n",
        "        return False\n",
        (SESSIONS,),
    ),
    Rule(
        "messages of a batch are in one transaction at most",
        "a message counts in two transactions",
        _PENDING,
        "            if other != txn_id and taken & bits and other not in self._going_back:\n",
        "            if False:\n",
        (COMBINED,),
    ),
    Rule(
        "messages of a batch that are acknowledged are in no transaction",
        "a message counts twice",
        _PENDING,
        "        if cursor.is_acked(position) or (left is not None and bits & ~bits_of_words(left)):\n",
        "        if cursor.is_acked(position):\n",
        (BOUNDS,),
    ),
    Rule(
        "one transaction acknowledges all up to a message",
        "two commits take the same messages",
        _PENDING,
        "        if self._upto is not None and self._upto != txn_id:\n",
        "        if False:\n",
        (SESSIONS,),
    ),
    Rule(
        "what is acknowledged is not acknowledged up to again",
        "a message counts twice",
        _PENDING,
        "        if position <= cursor.mark_delete:\n",
        "        if False:\n",
        (SESSIONS,),
    ),
    Rule(
        "all up to a message is in one transaction",
        "a message counts in two transactions",
        _PENDING,
        "            if other != txn_id and any(at <= position for at in (*held.whole, *held.parts)):\n",
        "            if False:\n",
        (REPAIRED,),
    ),
    Rule(
        "a cumulative acknowledgement of a transaction does not go back",
        "a commit leaves out what was acknowledged",
        _PENDING,
        "        if acks.upto is not None and position < acks.upto:\n",
        "        if False:\n",
        (BOUNDS,),
    ),
    Rule(
        "nothing is acknowledged cumulatively where consumers share",
        "a commit takes messages that another consumer has",
        _ACKS,
        "        if event.cumulative and shared:\n",
        "        if False:\n",
        (BOUNDS,),
    ),
    Rule(
        "a transaction acknowledges on durable subscriptions only",
        "what it acknowledged is gone with its reader",
        "broker/transactions/acked_on.py",
        "    if not isinstance(subscription, Subscription) or not subscription.durable:\n",
        "    if not isinstance(subscription, Subscription):\n",
        (COMBINED,),
    ),
    Rule(
        "a subscription is added before it acknowledges in a transaction",
        "a role without the permission acknowledges all the same",
        _TXNS,
        "        if subscription.name not in txn.acks.get(str(subscription.topic), ()):\n",
        "        if False:\n",
        (COMBINED,),
    ),
    Rule(
        "an aborted acknowledgement comes again",
        "a message is lost",
        _ACKS,
        "            self._give_again(given, last=last)\n",
        "            pass\n",
        (SESSIONS,),
    ),
    Rule(
        "a turn gives a piece back",
        "a large transaction that is aborted has the event loop for tens of milliseconds",
        _ACKS,
        "given, last = self.pending.given_back(PIECE_MAX)",
        "given, last = self.pending.given_back(1 << 30)",
        (GOING_BACK,),
    ),
    Rule(
        "a turn counts a piece",
        "a large transaction that commits has the event loop for tens of milliseconds",
        _ACKS,
        "        for _ in range(min(PIECE_MAX, len(left))):\n",
        "        for _ in range(len(left)):\n",
        (GOING_BACK,),
    ),
    Rule(
        "a header stays until all pieces count",
        "after a crash acknowledgements of a committed transaction are lost",
        "broker/transactions/topic_transactions.py",
        "            await subscription.transactions.counted(id_)\n",
        "            pass\n",
        (GOING_BACK,),
    ),
    Rule(
        "what goes back is free for other transactions",
        "a client that repeats its work after an abort is refused",
        _PENDING,
        "            holder = None if holder in self._going_back else holder\n",
        "",
        (GOING_BACK,),
    ),
    Rule(
        "what another transaction took meanwhile is not given back",
        "a message comes again that a transaction acknowledges",
        _PENDING,
        "            if self._whole.get(position) == txn_id:\n",
        "            if position in self._whole:\n",
        (GOING_BACK,),
    ),
    Rule(
        "what comes again counts as redelivered",
        "a message that is aborted again and again never becomes a dead letter",
        _ACKS,
        "            subscription.cursor.redelivered(again)\n",
        "            pass\n",
        (SESSIONS,),
    ),
    # -- cursors
    Rule(
        "a new subscription passes over hidden entries",
        "its backlog never ends",
        _TOPIC,
        '        """A subscription begins."""\n        pass_all_hidden(cursor, self.spans.visible)\n',
        '        """A subscription begins."""\n',
        (KEPT,),
    ),
    Rule(
        "a subscription that is recovered passes over hidden entries",
        "its backlog never ends",
        _TOPIC,
        "        for subscription in self._subscriptions.values():\n            pass_all_hidden(",
        "        for subscription in ():\n            pass_all_hidden(",
        (KEPT,),
    ),
    Rule(
        "a seek passes over hidden entries",
        "the backlog never ends",
        "broker/subscription/read_place.py",
        "        pass_all_hidden(self.cursor, self.log.reading.visible)\n",
        "",
        (KEPT,),
    ),
    Rule(
        "the deletion of a subscription ends its transactions",
        "a commit acknowledges in a subscription of the same name that was made later",
        "broker/topic/topic.py",
        '            await subscription.transactions.end("its subscription was deleted")\n',
        "            pass\n",
        (ORDER,),
    ),
    Rule(
        "a seek waits until what was decided is durable",
        "after a crash a commit acknowledges what the seek brought back",
        _TXNS,
        "            await self._resolving.settled(topic, found)\n",
        "            pass\n",
        (KEPT,),
    ),
    Rule(
        "a read never goes on behind the first open transaction",
        "committed messages are left out",
        "managedlog/visible_reading.py",
        (
            "        # Never on behind the end: it may have moved when that is read,"
            " and what lay between were left out.\n"
            "        if (found := visible.shown(runs)) or visible.ends_within(runs):\n"
        ),
        "        if (found := visible.shown(runs)) or visible.ends_within(runs[:1]):\n",
        (VISIBLE,),
    ),
    # -- bounds and time
    Rule(
        "a coordinator has so many open transactions at most",
        "one client takes all memory",
        _COORDINATOR,
        "        if self.open_count >= self.open_max:\n",
        "        if False:\n",
        (SESSIONS,),
    ),
    Rule(
        "a transaction lives so long at most",
        "a client holds readers back for ever",
        _COORDINATOR,
        "        if ttl_ms > TTL_MS_MAX:\n",
        "        if False:\n",
        (BOUNDS,),
    ),
    Rule(
        "a header has so many bytes at most",
        "a transaction can neither commit nor abort",
        "broker/transactions/transaction.py",
        "        if self.size_bytes + size_bytes > HEADER_BYTES_MAX:\n",
        "        if False:\n",
        (REPAIRED,),
    ),
    Rule(
        "time goes on over a restart",
        "a transaction lives longer with every restart",
        _COORDINATOR,
        "        left_ms = min(max(txn.started_ms + txn.ttl_ms - wall_ms, 0), txn.ttl_ms)\n",
        "        left_ms = txn.ttl_ms\n",
        (ORDER,),
    ),
    Rule(
        "a clock that was set back lengthens no transaction's life",
        "a transaction holds readers back for years",
        _COORDINATOR,
        "        left_ms = min(max(txn.started_ms + txn.ttl_ms - wall_ms, 0), txn.ttl_ms)\n",
        "        left_ms = max(txn.started_ms + txn.ttl_ms - wall_ms, 0)\n",
        (ORDER,),
    ),
    Rule(
        "a transaction that was open at a restart ends by its time",
        "a transaction whose client is gone holds readers back for ever",
        _TXNS,
        "                    self._resolving.follow(txn)\n        self._deadlines.set()\n",
        "                    self._resolving.follow(txn)\n",
        (KEPT,),
    ),
    Rule(
        "what was decided before a restart is followed after it",
        "headers stay for ever",
        _TXNS,
        "                    self._resolving.follow(txn)\n        self._deadlines.set()\n",
        "                    pass\n        self._deadlines.set()\n",
        (KEPT,),
    ),
    # -- recovery of topics
    Rule(
        "acknowledgements of open transactions are known after a restart",
        "a message is delivered, and then acknowledged by a commit",
        _RESOLVING,
        "        part.recover_acks(concerned)\n",
        "",
        (SESSIONS, REPAIRED),
    ),
    Rule(
        "a topic that is loaded does what was decided",
        "committed messages wait, aborted acknowledgements never come again",
        _RESOLVING,
        "            if txn.state is not TxnState.OPEN:\n                self._tell(txn, name, part)",
        "            if False:\n                self._tell(txn, name, part)",
        (REPAIRED,),
    ),
    Rule(
        "an entry names its transaction",
        "after a restart a message that is not committed is read",
        _TOPIC,
        "self._log.append([stamped(entry, id_) for entry in entries], counts)",
        "self._log.append(entries, counts)",
        (SESSIONS,),
    ),
    # -- rights
    Rule(
        "a transaction is its owner's",
        "any client ends or fills any transaction",
        _COORDINATOR,
        "        return self.superuser or self.role == txn.owner\n",
        "        return True\n",
        (ORDER,),
    ),
    Rule(
        "adding a topic takes the permission to publish",
        "a role that may not publish holds the topic's readers back",
        "broker/transactions/commands.py",
        "            await permission.allow(session, Action.PRODUCE, topic)\n",
        "            pass\n",
        (BOUNDS,),
    ),
    Rule(
        "adding a subscription takes the permission to consume",
        "a role that may not consume acknowledges messages",
        "broker/transactions/commands.py",
        "            await permission.allow(session, Action.CONSUME, topic, subscription)\n",
        "            pass\n",
        (BOUNDS,),
    ),
    # -- Spark
    Rule(
        "a query plans no further than readers get",
        "a query passes messages of an open transaction, and never has them once it is committed",
        "tables/ledgers.py",
        "            last = _position(limit)\n",
        "            last = confirmed\n",
        (PLANNING,),
    ),
    Rule(
        "where statistics do not tell how far readers get, the broker's last message bounds a query",
        "with Apache's brokers a query passes messages of an open transaction",
        "tables/log_state.py",
        "    return KnownLog.from_bounded_stats(stats, last_position(client, topic))\n",
        "    return KnownLog.from_internal_stats(stats)\n",
        (LOG_STATE,),
    ),
)
