"""Keeps bookies beside the broker and its metadata together, as `guard.py` does for the store in the process.

    begin   before any bookie starts: judges each folder (`membership.py`), raises the generation
    run     periodically: raises the generation, carries out operators' decisions
    end     raises the generation once more: a copy made while the process ran is older than the folders

Operators decide by the file DECISIONS of the folder where the bookies meet, written by `magnetar storage
accept`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from magnetar.base.errors import MagnetarError, MetadataError, StartupError, StorageError
from magnetar.bookie.belonging import DamagedBelongingError, InMetadata
from magnetar.bookie.decisions import (
    DECISIONS_FILE,
    Decisions,
    encode_decisions,
    forget_decisions,
    read_decisions,
)
from magnetar.bookie.folder import FORMAT_FILE
from magnetar.bookie.network.entries import UNSURE_FILE
from magnetar.bookie.network.readmission import write_readmission
from magnetar.ledger.membership import (
    MEMBER_FILE,
    Member,
    Ruling,
    decode_member,
    encode_member,
    in_words,
    rule,
)
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.metadata.documents import number_of
from magnetar.metadata.keys import BOOKIES_BESIDE, GENERATION
from magnetar.metadata.store import ANY_VERSION, OPERATIONS_MAX, MetadataStore, NotFoundError, Put
from magnetar.metadata.trust import MetadataTrust
from magnetar.observability.metrics import Exposition
from magnetar.runtime.durable_file import sync_folder, write_durably
from magnetar.runtime.tasks import pause
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.ledger")

RAISE_S: Final = 600.0
"""Seconds between two generations."""
DECISIONS_S: Final = 5.0
"""Seconds between two searches for decisions."""
_IDENTITY: Final = "identity"
_ACCEPT: Final = "or go on with what is there by `magnetar storage accept`"


def read_member(folder: Path) -> Member | DamagedBelongingError | None:
    """The content of a bookie's MEMBER file; an error when it is damaged. Raises OSError."""
    try:
        return decode_member((folder / MEMBER_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except DamagedBelongingError as error:
        return error


class BesideGuard:
    """Guards the bookies beside one broker."""

    def __init__(
        self, folder: Path, registry: FolderBookieRegistry, metadata: MetadataStore, trust: MetadataTrust
    ) -> None:
        """`folder`: where the bookies meet; `trust` is told whether the metadata is doubted."""
        self._folder = folder
        self._registry = registry
        self._metadata = metadata
        self._trust = trust
        self._loop = asyncio.get_running_loop()
        self._decisions = folder / DECISIONS_FILE
        self._members: dict[str, Member] = {}
        # One raise at a time: each writes all folders.
        self._raising = asyncio.Lock()

    async def begin(self, instance: str, bookies: Sequence[str]) -> None:
        """To be called before any of them starts. Raises StartupError, MetadataError, OSError."""
        found = {bookie: read_member(self._folder / bookie) for bookie in bookies}
        known = {bookie: await self._known(instance, bookie) for bookie in bookies}
        rulings = {bookie: rule(found[bookie], known[bookie], Member(instance, bookie)) for bookie in bookies}
        decisions = read_decisions(self._decisions)
        doubt = self._registry.doubt()
        accepted = decisions.accepts(in_words(found, known, doubt))
        self._refuse(rulings, accepted=accepted)
        # A doubt stays until an operator decides.
        doubt = doubt or next((ruling.doubt for ruling in rulings.values() if ruling.doubt), "")
        if accepted:
            await self._accept(doubt, [bookie for bookie in bookies if rulings[bookie].misses])
        else:
            await self._doubted(doubt)
        await self._readmit(decisions.readmit & set(bookies))
        generations = [theirs.generation for theirs in known.values() if theirs is not None]
        for bookie, mine in found.items():
            member = mine if isinstance(mine, Member) else Member(instance, bookie)
            self._members[bookie] = member
            generations += [member.generation, member.begun]
        await self._raise_to(1 + max(generations, default=0))
        forget_decisions(self._decisions)

    def _refuse(self, rulings: dict[str, Ruling], *, accepted: bool) -> None:
        refused = [ruling for ruling in rulings.values() if ruling.refusal]
        if not refused or (accepted and all(ruling.misses for ruling in refused)):
            return
        remedy = f"; {_ACCEPT}" if all(ruling.misses for ruling in refused) else ""
        raise StartupError(". ".join(ruling.refusal for ruling in refused) + remedy)

    async def _known(self, instance: str, bookie: str) -> InMetadata | None:
        path = f"{BOOKIES_BESIDE}/{bookie}"
        value = await self._metadata.get(path)
        return None if value is None else InMetadata(instance, number_of(path, value.data))

    async def _accept(self, doubt: str, missing: Sequence[str]) -> None:
        for bookie in missing:
            folder = self._folder / bookie
            folder.mkdir(exist_ok=True)
            write_durably(folder / UNSURE_FILE, b"")
            sync_folder(self._folder)
            if not any(folder.glob("segments/*.seg")):
                # A new folder for one that is gone gets a cookie of its own.
                try:
                    await self._registry.delete_cookie(bookie, expected_version=0)
                except NotFoundError:  # there is no registration to remove
                    _log.info("%s had no cookie", bookie)
            _log.warning(
                "%s continues although it lacks messages: it serves those that it has, and accepts no new "
                "ones",
                bookie,
            )
        _log.warning("the metadata is accepted as it is: %s", doubt or "nothing was in doubt")
        await self._doubted("")
        # Each bookie keeps the doubt itself too, and reads this within seconds.
        for store in self._folder.glob(f"*/{FORMAT_FILE}"):
            write_durably(store.parent / DECISIONS_FILE, encode_decisions(Decisions(accept=True)))

    async def _readmit(self, bookies: Collection[str]) -> None:
        """No bookie runs, and no ledger is written: all existing ledgers may have lost entries, later ones
        have not."""
        if bookies and not self._trust.is_trusted:
            _log.error("%s: accepts no entries while metadata is doubted", ", ".join(sorted(bookies)))
            return
        ledgers = [ledger_id async for ledger_id in self._registry.ledger_ids()] if bookies else []
        for bookie in bookies:
            await in_thread(write_readmission, self._folder / bookie, ledgers)

    async def _doubted(self, doubt: str) -> None:
        await in_thread(self._registry.doubted, doubt)
        if doubt:
            self._trust.doubted(_IDENTITY, doubt)
            _log.error("%s. Ledgers that it does not name are kept", doubt)
        else:
            self._trust.cleared(_IDENTITY)

    @asynccontextmanager
    async def steady(self) -> AsyncIterator[None]:
        """The generation of folders and metadata does not change in this block: copies of all of them
        match."""
        async with self._raising:
            yield

    async def _raise_to(self, generation: int) -> None:
        """The three steps. On a full disk they are skipped: the present generations match as well."""
        async with self._raising:
            try:
                await self._write(begun=generation)
                before = await self._metadata.get(GENERATION)
                raised = 1 + (0 if before is None else number_of(GENERATION, before.data))
                puts = [
                    Put(GENERATION, str(raised).encode(), ANY_VERSION),
                    *(
                        Put(f"{BOOKIES_BESIDE}/{bookie}", str(generation).encode(), ANY_VERSION)
                        for bookie in self._members
                    ),
                ]
                # A crash between two parts is as one before: each bookie is compared with its own number.
                for start in range(0, len(puts), OPERATIONS_MAX):
                    await self._metadata.transact(puts[start : start + OPERATIONS_MAX])
                await self._write(begun=generation, generation=generation)
            except (OSError, StorageError, MetadataError) as error:
                # Repeated after RAISE_S; meanwhile only the protection against older copies is missing.
                _log.warning("the generation of the bookies stays unchanged for now: %s", error)

    async def _write(self, *, begun: int, generation: int | None = None) -> None:
        for bookie, member in self._members.items():
            changed = replace(
                member, begun=begun, generation=member.generation if generation is None else generation
            )
            folder = self._folder / bookie
            if not folder.exists():
                folder.mkdir()
                sync_folder(self._folder)
            await in_thread(write_durably, folder / MEMBER_FILE, encode_member(changed))
            self._members[bookie] = changed

    async def run(self) -> None:
        """Raises the generation periodically, and carries out decisions, until it is cancelled."""
        raised_s = self._loop.time()
        while True:
            await pause(DECISIONS_S)
            try:
                if self._loop.time() - raised_s >= RAISE_S:
                    raised_s = self._loop.time()
                    await self._raise_to(self._next())
                await self.decide()
            except (OSError, MagnetarError) as error:  # the loop is the retry
                _log.error("a decision of `magnetar storage` could not be carried out: %s", error)

    def _next(self) -> int:
        return 1 + max((member.begun for member in self._members.values()), default=0)

    async def decide(self) -> None:
        """Carries out the decisions since the last call. Raises OSError, MetadataError."""
        if not self._decisions.exists():
            return
        decisions = read_decisions(self._decisions)
        doubt = self._registry.doubt()
        if doubt:
            instance = await self._registry.instance_id()
            known = {bookie: await self._known(instance, bookie) for bookie in self._members}
            if decisions.accepts(in_words(self._members, known, doubt)):
                await self._accept(doubt, [])
        if not decisions.readmit:
            forget_decisions(self._decisions)
        elif decisions.accept:
            # The next start does that.
            write_durably(self._decisions, encode_decisions(Decisions(readmit=decisions.readmit)))

    async def end(self) -> None:
        """To be called when no client is served any more."""
        await self._raise_to(self._next())

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """Adds whether metadata is doubted to a scrape."""
        out.gauge(
            "magnetar_metadata_doubted",
            "1 while metadata is doubted (damaged, or an older copy), so that ledgers which"
            " it does not name are kept; else 0.",
            0 if self._trust.is_trusted else 1,
        )
        yield
