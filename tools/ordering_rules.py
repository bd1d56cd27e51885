"""The ordering rules of the code that stores things, each with a mutant that breaks it: see mutate.py."""

from __future__ import annotations

from typing import Final

from mutant_rule import Rule

CUTS: Final = "integration/test_storage_cuts.py"
SEGMENT_CUTS: Final = f"{CUTS}::test_acknowledged_entries_survive_power_cuts"
METADATA_CUTS: Final = f"{CUTS}::test_metadata_that_was_written_survives_power_cuts"
OPENING_CUTS: Final = f"{CUTS}::test_a_folder_opens_after_a_cut_while_it_is_made"
LOG_CUTS: Final = f"{CUTS}::test_a_log_survives_power_cuts"
STORE: Final = "unit/bookie/test_store.py"
BOOKIE_ORDER: Final = "unit/bookie/test_ordering.py"
HOUSEKEEPING: Final = "unit/bookie/network/test_housekeeping.py"
STORE_FAILURES: Final = "unit/bookie/test_store_failures.py"
ROSTER: Final = "unit/bookie/test_roster.py"
SPARES: Final = "unit/bookie/test_spares.py"
REWRITER: Final = "unit/bookie/test_rewriter.py"
EMBEDDED: Final = "unit/metadata/test_embedded.py"
SQLITE_LOG: Final = "unit/metadata/test_sqlite_log.py"
CONTRACT: Final = "unit/metadata/test_contract.py"
LEDGERS: Final = "unit/ledger/test_embedded.py"
GUARD: Final = "unit/ledger/test_guard.py"
BROKER_TIMES: Final = "unit/managedlog/test_broker_times.py"
LIFECYCLE: Final = "unit/managedlog/test_lifecycle.py"
CURSORS: Final = "unit/managedlog/cursors/test_cursor_store.py"
LOGS: Final = "property/test_managedlog_machine.py"
OFFLOADING: Final = "unit/tiered/test_offloading.py"
DEDUP: Final = "unit/broker/dedup/test_deduplication.py"
REQUESTS: Final = "unit/server/bookies/test_bookie_requests.py"
REGISTRY: Final = "unit/metadata/bookkeeper/test_registry.py"
CLAIM: Final = "unit/server/bookies/test_broker_claim.py"
COMPACTION: Final = "unit/broker/compaction/test_topic_compaction.py"

RULES: Final = (
    # -- the segment store
    Rule(
        "what came too late holds nothing",
        "a crash leaves a segment that passes for damage of unknown ledgers",
        "bookie/opening.py",
        "            if start[0] < segment.segment_id:\n",
        "            if False:\n",
        (SPARES,),
    ),
    Rule(
        "sync before acknowledgement",
        "an acknowledged entry is only in the page cache",
        "bookie/segment_store.py",
        "        self.syncer.sync(self._slot, self._synced)\n",
        "        self._loop.call_soon(self._synced, None)\n",
        (SEGMENT_CUTS,),
    ),
    Rule(
        "a failed sync is the last",
        "the kernel drops what it could not write, and the next sync succeeds",
        "bookie/segment_store.py",
        (
            '            self._fail(storage_error(error, self.directory, "sync entries"))\n'
            "            return\n"
            "        queue = self._queue\n"
        ),
        "            pass\n        queue = self._queue\n",
        (STORE_FAILURES,),
    ),
    Rule(
        "a failed write is not written over",
        "half of the old group lies behind the new one and is taken for its end",
        "bookie/segment_store.py",
        "        self._must_roll = True\n        _log.error",
        "        _log.error",
        (STORE_FAILURES,),
    ),
    Rule(
        "a segment's name before its first entry",
        "entries are synced in a file that has no name after a cut",
        "bookie/segment_file.py",
        (
            "        disk.sync(fd)\n"
            "        unfinished.rename(path)\n"
            "        disk.sync_folder(folder.segments)\n"
            "    except OSError:\n"
            "        os.close(fd)\n"
        ),
        (
            "        disk.sync(fd)\n"
            "        unfinished.rename(path)\n"
            "    except OSError:\n"
            "        os.close(fd)\n"
        ),
        (BOOKIE_ORDER, SEGMENT_CUTS),
    ),
    Rule(
        "a recycled segment's name before its first entry",
        "as above, of a file that had a life before",
        "bookie/segment_file.py",
        (
            "        disk.sync(fd)\n"
            "        unfinished.rename(path)\n"
            "        disk.sync_folder(folder.segments)\n"
            "    except OSError:\n"
            "        if fd >= 0:\n"
        ),
        (
            "        disk.sync(fd)\n"
            "        unfinished.rename(path)\n"
            "    except OSError:\n"
            "        if fd >= 0:\n"
        ),
        (BOOKIE_ORDER, SEGMENT_CUTS),
    ),
    Rule(
        "the old name goes before new bytes come",
        "a dead segment comes back after a cut, with the bytes of another in it",
        "bookie/segment_file.py",
        (
            "        disk.sync_folder(folder.segments)\n"
            "        fd = os.open(unfinished, os.O_RDWR | os.O_CLOEXEC)\n"
        ),
        "        fd = os.open(unfinished, os.O_RDWR | os.O_CLOEXEC)\n",
        (SPARES,),
    ),
    Rule(
        "a spare counts when its old name is gone",
        "as above",
        "bookie/spares.py",
        "        path.rename(spare)\n        self._disk.sync_folder(self._folder.segments)\n",
        "        path.rename(spare)\n",
        (SPARES,),
    ),
    Rule(
        "no reader uses a file that is written over",
        "a reader of a deleted ledger gets bytes of another",
        "bookie/supply.py",
        "        if not segment.is_read and stat.st_nlink == 1 and self.spares.reserve(",
        "        if stat.st_nlink == 1 and self.spares.reserve(",
        (SPARES,),
    ),
    Rule(
        "what lies behind the end goes before the footer comes",
        "blocks of a torn group are found behind a torn footer",
        "bookie/segment_file.py",
        "    os.ftruncate(segment.fd, end)\n",
        "",
        (BOOKIE_ORDER,),
    ),
    Rule(
        "a segment is listed before it is written to",
        "its file is lost unnoticed",
        "bookie/supply.py",
        "            self._roster.add(segment_id)\n",
        "            pass\n",
        (ROSTER,),
    ),
    Rule(
        "a segment is off the list before its file goes",
        "after a crash a deleted segment counts as lost",
        "bookie/supply.py",
        ("        self._roster.remove(segment.segment_id)\n        remove_segment(segment, self._disk)\n"),
        ("        remove_segment(segment, self._disk)\n        self._roster.remove(segment.segment_id)\n"),
        (ROSTER,),
    ),
    Rule(
        "a segment is off the list before its file is a spare",
        "as above",
        "bookie/supply.py",
        ("        self._roster.remove(segment.segment_id)\n        self.spares.keep(segment.path)\n"),
        ("        self.spares.keep(segment.path)\n        self._roster.remove(segment.segment_id)\n"),
        (ROSTER,),
    ),
    Rule(
        "a segment that was lost stays listed",
        "the second start knows nothing of it",
        "bookie/opening.py",
        "    roster.replace(segment.segment_id for segment in found)\n",
        "    roster.replace(segment.segment_id for segment in kept)\n",
        (ROSTER,),
    ),
    Rule(
        "one copy of the list is whole at any time",
        "a torn write leaves none, and the store does not open",
        "bookie/roster.py",
        ("                self._disk.write(fd, [copy], offset)\n                self._disk.sync(fd)\n"),
        ("                self._disk.write(fd, [copy], offset)\n            self._disk.sync(fd)\n"),
        (ROSTER,),
    ),
    Rule(
        "a tombstone before the deletion's answer",
        "a deleted ledger comes back",
        "bookie/burials.py",
        "        await gathered(futures)\n",
        "        await gathered(())\n",
        (BOOKIE_ORDER,),
    ),
    Rule(
        "a tombstone outlives the blocks",
        "the segment with the tombstone goes, and the ledger's blocks elsewhere come back",
        "bookie/segment_store.py",
        "            await self._write_tombstones(needed)\n",
        "            pass\n",
        (STORE, "property/test_bookie_rewrite.py"),
    ),
    Rule(
        "a rewritten segment is synced before it takes the old one's place",
        "the only copy of what lives is in the page cache",
        "bookie/segment_file.py",
        "    disk.write(segment.fd, [footer], end)\n    disk.sync(segment.fd)\n",
        "    disk.write(segment.fd, [footer], end)\n",
        (SEGMENT_CUTS,),
    ),
    Rule(
        "damage is not copied under a new sum",
        "wrong bytes are served after a segment was rewritten",
        "bookie/segment_copy.py",
        "        if not body_is_good(header, body):\n            raise self._corrupt(offset)\n",
        "",
        (REWRITER,),
    ),
    Rule(
        "a rewritten segment takes along the tombstones that are needed",
        "the blocks of a deleted ledger elsewhere come back",
        "bookie/rewriter.py",
        "            fresh = await in_thread(copy.finish, tombstones)\n",
        "            fresh = await in_thread(copy.finish, [])\n",
        (BOOKIE_ORDER,),
    ),
    # -- folders and small files
    Rule(
        "a new store's folder has its name before anything in it counts",
        "the folder is gone after a cut, with all that was synced in it",
        "bookie/folder.py",
        "                if sync:\n                    settle_folder(root)\n",
        "",
        (SEGMENT_CUTS,),
    ),
    Rule(
        "the identity before the format",
        "a store that says that it is one has no identity, and does not open",
        "bookie/folder.py",
        (
            '                _write_text(root / INSTANCE_FILE, f"{uuid.uuid4()}\\n'
            '", disk, sync=sync)\n'
            '                _write_text(root / FORMAT_FILE, f"{FORMAT_VERSION}\\n'
            '", disk, sync=sync)\n'
        ),
        (
            '                _write_text(root / FORMAT_FILE, f"{FORMAT_VERSION}\\n'
            '", disk, sync=sync)\n'
            '                _write_text(root / INSTANCE_FILE, f"{uuid.uuid4()}\\n'
            '", disk, sync=sync)\n'
        ),
        (OPENING_CUTS,),
    ),
    Rule(
        "a small file's bytes before its name",
        "the name is there after a cut, and the file is empty",
        "bookie/folder.py",
        "        if sync:\n            os.fsync(fd)\n",
        "",
        (OPENING_CUTS,),
    ),
    Rule(
        "the data folder's format before its name",
        "as above: the folder counts as damaged",
        "runtime/durable_file.py",
        "        os.fsync(out.fileno())\n",
        "",
        (OPENING_CUTS,),
    ),
    # -- metadata
    Rule(
        "the metadata's log is synced at each commit",
        "SQLite's faster mode syncs at checkpoints only: the last writes are lost",
        "metadata/sqlite_file.py",
        "'FULL' if durable else 'OFF'",
        "'NORMAL' if durable else 'OFF'",
        (METADATA_CUTS,),
    ),
    Rule(
        "commit before answer",
        "a write that returned is lost",
        "metadata/embedded.py",
        '                commit = self._thread.run(self._writer.execute, "COMMIT")\n',
        (
            "                self._finish(group)\n"
            "                commit = self._thread.run(self._writer.execute,"
            ' "COMMIT")\n'
        ),
        (EMBEDDED,),
    ),
    Rule(
        "a log of writes goes as far as its note says",
        "the last commits are taken back without a word where more than a bit of them is damaged",
        "metadata/sqlite_log.py",
        "max(examined.frames, note.copied) < note.frames",
        "False",
        (SQLITE_LOG,),
    ),
    Rule(
        "a failed commit is the last",
        "later commits stand on pages that the kernel has dropped",
        "metadata/embedded.py",
        "        self._failure = failure\n",
        "",
        (EMBEDDED,),
    ),
    Rule(
        "a failed commit ends the process",
        "a process that can write nothing reports that it is ready",
        "metadata/embedded.py",
        "            call_soon(self._on_fatal, failure)\n",
        "            pass\n",
        (EMBEDDED,),
    ),
    Rule(
        "an earlier process's log is emptied before it grows",
        "commits follow frames that never reach the device",
        "metadata/sqlite_file.py",
        '        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()\n',
        '        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()\n',
        (EMBEDDED,),
    ),
    Rule(
        "a refused write leaves nothing",
        "half of a transaction is stored with its neighbours in the group",
        "metadata/embedded.py",
        '                    execute("ROLLBACK TO write")\n',
        "                    pass\n",
        (CONTRACT,),
    ),
    Rule(
        "ephemeral values end before the next session begins",
        "owners that died hold what they owned",
        "metadata/embedded.py",
        "        Tree(self._write_nodes, clock, session).end_sessions([])\n",
        "",
        (EMBEDDED,),
    ),
    # -- ledgers
    Rule(
        "ids are reserved before they are used",
        "after a restart an id is given away twice",
        "ledger/embedded.py",
        "                        [reservation, Put(ledger_path(start), value, MUST_NOT_EXIST)]\n",
        "                        [Put(ledger_path(start), value, MUST_NOT_EXIST)]\n",
        (LEDGERS, "integration/test_ledgers_contract.py"),
    ),
    Rule(
        "a ledger's end is stored before it is told",
        "two openings of a ledger without a writer end it in two places",
        "ledger/embedded.py",
        (
            "                await self._metadata.put(\n"
            "                    ledger_path(ledger_id),\n"
            "                    encode_ledger_metadata(closed),\n"
        ),
        (
            "                await asyncio.sleep(0)\n"
            "                (lambda *_, **__: None)(\n"
            "                    ledger_path(ledger_id),\n"
            "                    encode_ledger_metadata(closed),\n"
        ),
        (LEDGERS, "integration/test_ledgers_contract.py"),
    ),
    Rule(
        "a writer is fenced before its ledger is ended",
        "entries are acknowledged behind the end",
        "ledger/embedded.py",
        (
            "                await writer.fence()\n"
            "                writer.release()\n"
            "                self._writers.pop(ledger_id, None)\n"
            "            end"
        ),
        "                self._writers.pop(ledger_id, None)\n            end",
        (LEDGERS, "integration/test_ledgers_contract.py"),
    ),
    Rule(
        "a ledger is durable to its end before it is closed",
        "the end that is stored lies before entries that are acknowledged later",
        "ledger/embedded.py",
        (
            "        await self._appender.settle()\n"
            "        if self._fenced:\n"
            '            raise LedgerFencedError(f"ledger {self.ledger_id} is fenced")\n'
            "        if self._appender.error"
        ),
        (
            "        if self._fenced:\n"
            '            raise LedgerFencedError(f"ledger {self.ledger_id} is fenced")\n'
            "        if self._appender.error"
        ),
        (LEDGERS, "integration/test_ledgers_contract.py"),
    ),
    Rule(
        "a ledger's metadata goes before its entries",
        "after a cut the metadata names a ledger whose entries are gone",
        "ledger/embedded.py",
        (
            "        with contextlib.suppress(NotFoundError):\n"
            "            await self._metadata.transact([Delete(ledger_path(ledger_id)), *note])\n"
            "        await self._store.delete(ledger_id)\n"
        ),
        (
            "        await self._store.delete(ledger_id)\n"
            "        with contextlib.suppress(NotFoundError):\n"
            "            await self._metadata.transact([Delete(ledger_path(ledger_id)), *note])\n"
        ),
        (GUARD,),
    ),
    Rule(
        "metadata in doubt finishes no deletion",
        "a note in an older copy deletes a ledger that has its id since",
        "ledger/guard.py",
        "            if self.trust.is_trusted:\n                await self._finish_deletions()\n",
        "            await self._finish_deletions()\n",
        (GUARD,),
    ),
    Rule(
        "a ledger that is named again is not deleted",
        "metadata that was restored meanwhile names a ledger whose entries are gone",
        "ledger/guard.py",
        (
            "            if await self._metadata.exists(ledger_path(ledger_id)):\n"
            "                continue\n"
            "            held ="
        ),
        "            held =",
        (GUARD,),
    ),
    Rule(
        "a bookie looks again right before it deletes",
        "what was listed while metadata was away is deleted",
        "bookie/network/collecting.py",
        (
            "        exists = await existing.ledger_exists(ledger_id)\n"
            "        _check_connection(existing, connection_id)\n"
        ),
        "        exists = False\n",
        (HOUSEKEEPING,),
    ),
    # -- managed logs
    Rule(
        "ids begin above what lies there",
        "an id is given away twice where the note of the ids was lost",
        "ledger/guard.py",
        "ids_end=max(before.ids_end, LedgerId(self._store.segments.highest_ledger() + 1))",
        "ids_end=before.ids_end",
        (GUARD,),
    ),
    Rule(
        "ids begin above what was ever used",
        "as above, beside metadata that was restored from an older copy",
        "ledger/listing.py",
        "return start if known_end is None else max(start, known_end)",
        "return start",
        (GUARD,),
    ),
    Rule(
        "a damaged number of ids begins above what was ever used",
        "an id of a deleted ledger is given away again",
        "ledger/listing.py",
        "max(known_end, LedgerId(await highest_ledger(metadata) + 1), FIRST_ID)",
        "max(LedgerId(await highest_ledger(metadata) + 1), FIRST_ID)",
        (GUARD,),
    ),
    Rule(
        "a clock is believed when it stays so",
        "what is written while the clock says 1970 has expired when it is right",
        "managedlog/broker_times.py",
        "return now_ms - self._behind_since_ms >= LAG_MS_MAX",
        "return True",
        (BROKER_TIMES,),
    ),
    Rule(
        "deletion waits after a step ahead",
        "a clock that is a day ahead for a minute deletes what has expired a day later",
        "base/clock.py",
        "if running_ms - self._doubted_since_ms < HOLD_MS:",
        "if False:",
        (BROKER_TIMES,),
    ),
    Rule(
        "retention goes by the settled time",
        "as above",
        "managedlog/lifecycle.py",
        "now_ms=self._clock.settled_ms(),",
        "now_ms=self._clock.now_ms(),",
        (BROKER_TIMES,),
    ),
    Rule(
        "TTL goes by the settled time",
        "as above",
        "broker/limits/enforcement.py",
        "enforce(topic, topic.limits.limits, clock.settled_ms())",
        "enforce(topic, topic.limits.limits, clock.now_ms())",
        ("unit/broker/limits/test_limits.py",),
    ),
    Rule(
        "subscriptions expire by the settled time",
        "as above: the place of a subscription is lost",
        "broker/inactive/expiry.py",
        "now_ms = broker.clock.settled_ms()",
        "now_ms = broker.clock.now_ms()",
        ("unit/broker/inactive/test_inactive_topics.py",),
    ),
    Rule(
        "objects that no log names are deleted by the settled time",
        "as above",
        "managedlog/orphan_objects.py",
        "self._clock.settled_ms() - each.modified_ms",
        "self._clock.now_ms() - each.modified_ms",
        ("unit/managedlog/test_orphan_objects.py",),
    ),
    Rule(
        "a store's own times tell what was there before",
        "objects of an earlier installation are deleted where this machine's clock is behind",
        "tiered/owner.py",
        "max(self._context.clock.now_ms(), *modified_ms, 0)",
        "self._context.clock.now_ms()",
        ("unit/tiered/test_owner.py",),
    ),
    Rule(
        "a table's snapshots never go back in time",
        "readers in Java refuse the table after a clock was set back",
        "lake/snapshot_times.py",
        "max(snapshot.timestamp_ms, _last_ms(metadata) + 1)",
        "snapshot.timestamp_ms",
        ("integration/test_lake_commits.py",),
    ),
    Rule(
        "a ledger's age is told by the clock",
        "each message begins a ledger while the log's last time is ahead",
        "managedlog/log.py",
        "self._lifecycle.roll_if_due(self._appender.clock_ms)",
        "self._lifecycle.roll_if_due(self._appender.times.last_ms)",
        (BROKER_TIMES,),
    ),
    Rule(
        "the last entry's time counts, not the highest",
        "a time that was found to be wrong comes back with a restart",
        "managedlog/recovery.py",
        "last_time = bounds.time_ms or last_time",
        "last_time = max(last_time, bounds.time_ms)",
        (BROKER_TIMES,),
    ),
    Rule(
        "list before entries",
        "entries are acknowledged in a ledger that the log does not name",
        "managedlog/lifecycle.py",
        (
            "            await self._rules.listed(storing, is_first=False)\n"
            "            is_stored = True\n"
            "            self._unlisted.remove(record.ledger_id)\n"
            "            if feed.error is not None:\n"
            "                raise feed.error\n"
            "            if not self._stopped and self._appender.error is None:\n"
            "                self._go_on_in(feed)\n"
        ),
        (
            "            if feed.error is not None:\n"
            "                raise feed.error\n"
            "            if not self._stopped and self._appender.error is None:\n"
            "                self._go_on_in(feed)\n"
            "            await self._rules.listed(storing, is_first=False)\n"
            "            is_stored = True\n"
            "            self._unlisted.remove(record.ledger_id)\n"
        ),
        (LIFECYCLE, LOGS),
    ),
    Rule(
        "list before deletion",
        "the log names a ledger that is gone, and does not open",
        "managedlog/lifecycle.py",
        (
            "            await self._stored.update(lambda metadata:"
            " metadata.without(frozenset(ledger_ids)))\n"
            "            for ledger_id in ledger_ids:\n"
        ),
        (
            "            await self._delete(ledger_ids)\n"
            "            await self._stored.update(lambda metadata:"
            " metadata.without(frozenset(ledger_ids)))\n"
            "            for ledger_id in ledger_ids:\n"
        ),
        (LIFECYCLE, LOGS, LOG_CUTS),
    ),
    Rule(
        "a cursor's snapshot before its name",
        "the cursor's value names a ledger that is empty after a cut",
        "managedlog/cursors/cursor_store.py",
        "            await ledger.snapshot_durable\n",
        "",
        (CURSORS, LOGS),
    ),
    Rule(
        "a cursor's new ledger is named before the old one goes",
        "the value names a ledger that is gone",
        "managedlog/cursors/cursor_store.py",
        "            await self._put(ledger.writer.ledger_id, bound)\n",
        (
            "            if old_ledger is not None:\n"
            "                await self._ledgers.delete(old_ledger.writer.ledger_id)\n"
            "            await self._put(ledger.writer.ledger_id, bound)\n"
        ),
        (CURSORS, LOGS),
    ),
    Rule(
        "delta before receipt",
        "an acknowledgement that the client was told of is lost",
        "managedlog/cursors/cursor_store.py",
        "        ledger.wrote(len(entry), whole=whole)\n",
        "        ledger.wrote(len(entry), whole=whole)\n        self._written()\n",
        (CURSORS,),
    ),
    Rule(
        "snapshot before trimming",
        "sequence ids are neither in the snapshot nor in the log: duplicates are stored",
        "broker/dedup/deduplication.py",
        "        self._cursor.set_properties(self.state.snapshot())\n",
        (
            "        self._cursor.set_properties(self.state.snapshot())\n"
            "        self._cursor.ack_cumulative(complete)\n"
        ),
        (DEDUP,),
    ),
    Rule(
        "compacted entries are durable before the log may be trimmed",
        "the last values of keys are in neither",
        "broker/compaction/topic_compaction.py",
        "        await cursor.flush()\n        cursor.ack_cumulative(horizon)\n",
        "        cursor.ack_cumulative(horizon)\n        await cursor.flush()\n",
        (COMPACTION,),
    ),
    # -- tiered storage
    Rule(
        "intent before object",
        "objects that no log names stay for ever",
        "tiered/attempt.py",
        "        return self._do(self._remember_intent())\n\n    def _do",
        "        return self._do(Convert(0))\n\n    def _do",
        (OFFLOADING, "unit/tiered/test_decisions.py"),
    ),
    Rule(
        "read-back before completion",
        "a damaged copy counts, and the only good one is deleted",
        "tiered/attempt.py",
        "            return self._do(Verify(effect.segment))\n",
        "            effect = Verify(effect.segment)\n",
        (OFFLOADING, "unit/tiered/test_decisions.py"),
    ),
    Rule(
        "the list says so before the local copy goes",
        "the log looks for a ledger on bookies that have deleted it",
        "managedlog/offloading.py",
        "        await self.remember(ledger_id, ledger.offload, ledger.offload.without_local())\n",
        "",
        (OFFLOADING,),
    ),
    Rule(
        "an object whose completion is in doubt stays",
        "the list names a copy whose objects were deleted",
        "tiered/attempt.py",
        "        if isinstance(effect, Remember) and effect.context.complete and not refused:\n",
        "        if isinstance(effect, Remember) and effect.context.complete and False:\n",
        (OFFLOADING, "unit/tiered/test_decisions.py"),
    ),
    Rule(
        "an offloaded object is synced before its name",
        "the object is empty after a cut, and the ledger's entries are deleted",
        "tiered/stores/local.py",
        "            os.fsync(target.fileno())\n",
        "            pass\n",
        (f"{CUTS}::test_offloaded_objects_survive_power_cuts",),
    ),
    Rule(
        "an offloaded object's folders have their names before it counts",
        "as above: the folder is gone",
        "tiered/stores/local.py",
        "            await self._do(name, lambda: settle_folder(self._root))\n",
        "",
        (f"{CUTS}::test_offloaded_objects_survive_power_cuts",),
    ),
    # -- backups of bookies beside the broker
    Rule(
        "bookies delete nothing while a point in time is taken",
        "the copied metadata names ledgers that a bookie's copy has tombstones of",
        "server/bookies/bookie_requests.py",
        "                    self._held.enter_context(store.still.hold())\n",
        "                    pass\n",
        (REQUESTS,),
    ),
    Rule(
        "a bookie that was started anew says so",
        "what it deleted since its start is missing in the backup",
        "server/bookies/bookie_requests.py",
        "        if what in (PAUSE, ENDS) and not self._is_holding:\n",
        "        if False:\n",
        (REQUESTS,),
    ),
    Rule(
        "no bookie reads while bookies say how far they are",
        "a copy confirms entries that none of its bookies has",
        "server/bookies/local_bookies.py",
        "        async with self._paused():\n            told =",
        "        if True:\n            told =",
        (REQUESTS,),
    ),
    Rule(
        "all bookies have stopped reading before the first says how far it is",
        "as above",
        "server/bookies/local_bookies.py",
        "                await asked[-1].ask(PAUSE)\n            yield\n",
        "                pass\n            yield\n            await asked[-1].ask(PAUSE)\n",
        (REQUESTS,),
    ),
    Rule(
        "a paused bookie reads no client, not one that comes either",
        "as above",
        "bookie/network/holding.py",
        "        for _ in range(self._holds):\n",
        "        for _ in range(0):\n",
        ("unit/bookie/network/test_holding.py",),
    ),
    Rule(
        "generations stay while they are copied",
        "the copy of a bookie's folder is newer or older than the metadata beside it, and does not start",
        "server/bookies/beside_storage.py",
        "        async with self._guard.steady(), self._bookies.held():\n",
        "        async with self._bookies.held():\n",
        (REQUESTS,),
    ),
    # -- sessions
    Rule(
        "what a session took along while it was made is made again",
        "a bookie is never registered, two brokers serve the same topics",
        "metadata/lasting.py",
        "        while before != lost:\n",
        "        while before == -1:\n",
        (REGISTRY, CLAIM),
    ),
    # -- several brokers
    Rule(
        "only the owner deletes",
        "another broker goes on acknowledging, into ledgers that no list names",
        "broker/registry/storage.py",
        ("into ledgers of no list.\n            await broker.owners.admit(name)\n"),
        "into ledgers of no list.\n            pass\n",
        ("unit/broker/registry/test_deletions_of_others.py",),
    ),
    Rule(
        "the owner is asked anew once the list of a log to be deleted was read",
        "a broker whose session has ended deletes what the next owner has acknowledged",
        "managedlog/logs.py",
        "                await confirmed()\n",
        "                pass\n",
        ("unit/broker/registry/test_deletions_of_others.py",),
    ),
    Rule(
        "a deletion takes no cursor that the next owner has read",
        "a subscription of the next owner is gone, with what it has not acknowledged",
        "managedlog/logs.py",
        "transact([Check(emptied.path, made.version), *some])\n",
        "transact(some)\n",
        ("unit/broker/registry/test_deletions_of_others.py",),
    ),
    Rule(
        "a partitioned topic is marked before its first partition goes",
        "a client that comes back has its broker make the partition again, of a topic that is gone",
        "broker/registry/partitioned.py",
        "        await policies.mark_deleted(name, deleted=True)\n",
        "",
        ("unit/admin/topics/test_over_partitions.py",),
    ),
)
