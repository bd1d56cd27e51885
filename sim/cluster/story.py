"""A cluster's life under faults: bookies, brokers with a log, auto-recovery and the store, all at once.

First everything goes wrong that may: crashes anywhere, cuts, bad disks, one bookie lost for ever or copies
damaged, owners that take the log from each other. Then it heals. The last owner must get the log, and all
that was acknowledged must be there; auto-recovery must have every copy made. Then another bookie is lost,
its copies must be made anew, and the log read once more.
"""

from __future__ import annotations

import contextlib
import logging
import random as global_random
import traceback
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from sim.cluster.bookie import SimBookie
from sim.cluster.clock import WorldClock
from sim.cluster.history import History
from sim.cluster.loop import Process, SimLoop
from sim.cluster.metadata import LedgerWatch
from sim.cluster.owner import Owner
from sim.cluster.recovery import RecoveryNode
from sim.cluster.store import SESSION_US, STORE, SimStore, StoreNode
from sim.cluster.wires import WireFaults, Wires
from sim.story import Violation
from sim.world import World

_MS: Final = 1_000
_S: Final = 1_000_000
FAULTS_BEGIN_US: Final = 100 * _MS
FAULTS_US: Final = 1_300 * _MS
PATIENCE_US: Final = 75 * _S
"""Virtual time until something that must happen has not: longer than anything in the product idles."""
LAYOUTS: Final = (QuorumLayout(3, 3, 2), QuorumLayout(3, 3, 2), QuorumLayout(3, 2, 2), QuorumLayout(4, 3, 2))

SimNode: TypeAlias = SimBookie | Owner | RecoveryNode


class ClusterStory:
    """One run of one seed."""

    def __init__(self, seed: str, *, keep_log: bool = False, skipped: frozenset[int] = frozenset()) -> None:
        """`skipped`: numbers of planned events that do not happen."""
        world = self.world = World(seed, keep_log=keep_log)
        random = world.random
        self.planned = 0
        """How many events were planned."""
        self._skipped = skipped
        self._is_over = False
        self._history = History(world)
        self._loop = SimLoop(world)
        self._calm = random.random() < 0.15
        self._wires = Wires(world, self._loop, WireFaults())
        self._tree = BookKeeperTree()
        self._watch = LedgerWatch(self._tree, self._history, self._holds)
        self._node = StoreNode(self._wires, WorldClock(world), self._watch.written)
        self._layout = random.choice(LAYOUTS)
        self._checks = random.choice(("none", "none", "all", "replicas"))
        """What the auditor checks besides lost bookies: `all` reads each copy, `replicas` only asks which
        exist."""
        self._losses_left = self._layout.ack_quorum - 1
        self._is_damaged = False
        """Whether a copy is damaged; the product may not have noticed it."""
        count = self._layout.ensemble_size + random.randint(2, 3)
        stalls = 0.0 if self._calm else random.choice((0.0, 0.05, 0.3))
        self._bookies = {
            name: SimBookie(self._node, self._tree, name, stalls=stalls)
            for name in (f"b{at}" for at in range(count))
        }
        self._owners = [
            Owner(self._node, self._tree, f"owner{at}", self._layout, self._history) for at in range(2)
        ]
        self._last = Owner(self._node, self._tree, "last", self._layout, self._history)
        delay_s = random.choice((0, 0, 1))
        self._recovery = [
            RecoveryNode(self._node, self._tree, f"recovery{at}", delay_s=delay_s, checks=self._checks)
            for at in range(random.choice((1, 2)))
        ]
        world.note("quorums", self._layout, "bookies", count, "checks", self._checks)

    def _wire_faults(self) -> WireFaults:
        random = self.world.random
        if self._calm:
            return WireFaults()
        return WireFaults(
            loss=random.choice((0.0, 0.01, 0.05)),
            slow=random.choice((0.0, 0.1, 0.3)),
            tearing=random.choice((0.0, 0.1)),
            resets=random.choice((0.0, 0.002, 0.02)),
            breaks=random.choice((0.0, 0.01, 0.05)),
        )

    def run(self) -> list[Violation]:
        """Lives it through; what did not hold."""
        state = global_random.getstate()
        # The product's own default of chance: where bookies are chosen.
        global_random.seed(self.world.random.getrandbits(64))
        with self._listening():
            try:
                self._live()
            finally:
                self._is_over = True
                self._loop.tidy_up()
                global_random.setstate(state)
        return self._history.violations

    def _live(self) -> None:
        self._initialize()
        self._wires.faults = self._wire_faults()
        for node in self._nodes():
            node.start()
        self._owners[0].wants = True
        self._plan()
        self._loop.run_until(FAULTS_BEGIN_US + FAULTS_US)
        self._heal()
        if self._finish() and self._waits_for("copies", self._is_replicated, self._what_lacks):
            self._lose_another()
            if self._waits_for("copies again", self._is_replicated, self._what_lacks):
                self._finish()
        for error in self._loop.errors:
            self._history.violation("unexpected", error)

    def _initialize(self) -> None:
        process = Process("init")
        store = SimStore(self._node, process)
        done = self._loop.start(process, initialize_cluster(store, self._tree, "sim"))
        self._loop.run_until(FAULTS_BEGIN_US, done.done)

    # -- what happens -------------------------------------------------------------------------------

    def _at(self, time_us: int, action: Callable[..., None], *arguments: object) -> None:
        """Plans an event, for any time that is not over."""
        if self.planned not in self._skipped:
            self.world.at(time_us - self.world.now_us, action, *arguments)
        self.planned += 1

    def _plan(self) -> None:
        random = self.world.random
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            self._plan_takeover()
        if self._calm:
            return
        for _ in range(random.choice((0, 1, 2, 4))):
            self._plan_crash(random.choice(random.choice((self._nodes(), [*self._owners]))))
        for _ in range(random.choice((0, 0, 1, 3))):
            self._plan_cut()
        for _ in range(random.choice((0, 0, 1, 2))):
            self._plan_disk_fault()
        if self._losses_left and random.random() < 0.6:
            self._plan_loss()
        elif self._losses_left and random.random() < 0.6:
            self._plan_silence()

    def _some_time(self) -> int:
        return FAULTS_BEGIN_US + self.world.random.randrange(FAULTS_US)

    def _plan_takeover(self) -> None:
        at_us = self._some_time()
        to = self.world.random.randrange(2)
        self._at(at_us, self._want, to, True)
        if self.world.random.random() < 0.7:
            self._at(at_us + self.world.random.randrange(200 * _MS), self._want, 1 - to, False)

    def _want(self, number: int, wants: bool) -> None:  # an event's argument
        self.world.note(self._owners[number].name, "is to own" if wants else "is not to own", "the log")
        self._owners[number].wants = wants

    def _nodes(self) -> list[SimNode]:
        return [*self._bookies.values(), *self._recovery, *self._owners]

    def _plan_crash(self, node: SimNode) -> None:
        random = self.world.random
        at_us = self._some_time()
        if random.random() < 0.5:
            self._at(at_us, self._crash_after, node, random.randrange(200))
        else:
            self._at(at_us, node.crash)
        self._at(at_us + random.randint(_MS, random.choice((100, 1500)) * _MS), node.start)

    def _crash_after(self, node: SimNode, steps: int) -> None:
        node.process.steps_left = steps

    def _plan_cut(self) -> None:
        random = self.world.random
        clients = [node.name for node in self._nodes() if node.name not in self._bookies]
        bookies = sorted(self._bookies)
        one = random.choice([*clients, *bookies])
        others = [STORE] if one in bookies else [STORE, *bookies]
        at_us = self._some_time()
        end_us = at_us + random.randint(10, 1500) * _MS
        for other in random.sample(others, random.randint(1, min(3, len(others)))):
            both = random.random() < 0.5
            pairs = [(one, other), (other, one)]
            for pair in pairs if both else [random.choice(pairs)]:
                self._at(at_us, self._wires.cut, *pair)
                self._at(end_us, self._wires.mend, *pair)

    def _plan_disk_fault(self) -> None:
        random = self.world.random
        bookie = random.choice(list(self._bookies.values()))
        at_us = self._some_time()
        if random.random() < 0.5:
            self._at(at_us, self._fill, bookie, True)
            self._at(at_us + random.randint(10, 800) * _MS, self._fill, bookie, False)
        else:
            self._at(at_us, self._fail_disk, bookie)
            self._at(at_us + random.randint(10, 800) * _MS, bookie.start)

    def _fill(self, bookie: SimBookie, full: bool) -> None:  # an event's argument
        bookie.set_full(full=full)

    def _fail_disk(self, bookie: SimBookie) -> None:
        self.world.note("a disk fails at", bookie.name)
        bookie.disk.fails_next = True

    def _plan_silence(self) -> None:
        """Crashes all owners for a while and loses a bookie: a ledger stays open without a writer."""
        self._losses_left -= 1
        random = self.world.random
        at_us = FAULTS_BEGIN_US + random.randrange(FAULTS_US // 3)
        for owner in self._owners:
            self._at(at_us + random.randrange(20 * _MS), owner.crash)
        bookie = random.choice(list(self._bookies.values()))
        self._at(at_us + random.randrange(100 * _MS), self._lose, bookie, "lost")

    def _plan_loss(self) -> None:
        self._losses_left -= 1
        random = self.world.random
        bookie = random.choice(list(self._bookies.values()))
        kind = random.choice(("lost", "damaged", "changed", "changed"))
        # Whatever goes bad on one bookie is one copy of each entry.
        for _ in range(1 if kind == "lost" else random.randint(1, 4)):
            self._at(FAULTS_BEGIN_US + random.randrange(FAULTS_US), self._lose, bookie, kind)

    def _lose(self, bookie: SimBookie, kind: str) -> None:
        if kind == "lost":
            bookie.lose()
        elif bookie.disk.flip_a_bit(unseen=kind == "changed"):
            self._is_damaged = True
            self.world.note("a copy is", kind, "at", bookie.name)

    # -- the end ------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.world.note("everything heals")
        for owner in self._owners:
            owner.crash()
        self._wires.heal()
        for bookie in self._bookies.values():
            bookie.process.steps_left = -1
            bookie.disk.fails_next = False
            bookie.set_full(full=False)
            bookie.start()
        for node in self._recovery:
            node.process.steps_left = -1
            node.start()

    def _finish(self) -> bool:
        """Whether an owner gets the log, and reads it to its end."""
        self._last.crash()
        self._last.finish()
        read = self._waits_for("the log", lambda: self._last.is_done, lambda: "no reader could read it")
        self._last.crash()
        return read

    def _waits_for(self, rule: str, done: Callable[[], bool], why: Callable[[], str]) -> bool:
        until_us = self.world.now_us + PATIENCE_US
        while not done() and self.world.now_us < until_us and not self._history.violations:
            self._loop.run_until(self.world.now_us + 200 * _MS)
        if not done() and not self._history.violations:
            self._history.violation("liveness", f"{rule}: {why()}")
        return not self._history.violations

    def _lose_another(self) -> None:
        """One more copy may be lost now that all are there; while copies are made anew, nodes go down."""
        random, now_us = self.world.random, self.world.now_us
        there = [bookie for bookie in self._bookies.values() if not bookie.is_lost]
        may_lose = not self._is_damaged or self._checks == "all"
        if len(there) > self._layout.ensemble_size and may_lose:
            self._at(now_us, random.choice(there).lose)
            if not self._calm and random.random() < 0.4:
                # While the auditor looks for ledgers.
                name, cut_us = self._recovery[0].name, now_us + SESSION_US + random.randrange(20 * _MS)
                self._at(cut_us, self._wires.cut, name, STORE)
                self._at(cut_us + 300 * _MS, self._wires.mend, name, STORE)
            for _ in range(0 if self._calm else random.randint(0, 3)):
                nodes: list[SimNode] = [*there, *self._recovery]
                node = random.choice(nodes)
                # About when the lost one's session ends, which is when its copies are made.
                down_us = now_us + SESSION_US + random.randrange(200 * _MS)
                self._at(down_us, node.crash)
                self._at(down_us + random.randrange(_MS, 300 * _MS), node.start)
            self._loop.run_until(now_us + 2 * _S)
            self._wires.heal()
            for each in self._nodes():
                if each not in self._owners:
                    each.start()

    def _is_replicated(self) -> bool:
        return not self._what_lacks()

    def _what_lacks(self) -> str:
        """The first copy that is not where its ledger says; "" when there is none."""
        for ledger_id, metadata in sorted(self._watch.ledgers.items()):
            for first, members in metadata.ensembles:
                for member in members:
                    if self._bookie(member).is_lost:
                        return f"{member}, which is lost, is in ledger {ledger_id} from {first} on"
            last = -1 if metadata.end is None else metadata.end.last_entry
            for entry_id in range(last + 1):
                if lack := self._lack(ledger_id, metadata, entry_id):
                    return lack
        return ""

    def _holds(self, bookie_id: str, ledger_id: LedgerId, entry_id: int) -> bool:
        bookie = self._bookie(bookie_id)
        return bookie.is_lost or entry_id in bookie.disk.held(ledger_id)

    def _bookie(self, bookie_id: str) -> SimBookie:
        return self._bookies[bookie_id.partition(":")[0]]

    def _lack(self, ledger_id: LedgerId, metadata: LedgerMetadata, entry_id: int) -> str:
        members = next(part for first, part in reversed(metadata.ensembles) if first <= entry_id)
        good = sum(
            self._is_good(members[index], ledger_id, entry_id) for index in self._layout.write_set(entry_id)
        )
        # Only checks find copies that were never there: Qa are enough for a writer. Without checks, a
        # damaged copy stays damaged until it is read.
        due = self._layout.write_quorum if self._checks == "all" else 1
        if good < due:
            return f"entry {entry_id} of ledger {ledger_id} has {good} good copies, {due} are due"
        there = sum(
            entry_id in self._bookie(members[index]).disk.held(ledger_id)
            for index in self._layout.write_set(entry_id)
        )
        if self._checks != "none" and there < self._layout.write_quorum:
            return f"entry {entry_id} of ledger {ledger_id} has {there} copies"
        return ""

    def _is_good(self, member: str, ledger_id: LedgerId, entry_id: int) -> bool:
        disk = self._bookie(member).disk
        if not disk.is_sound(ledger_id, entry_id):
            return False
        # A damaged entry may have been copied elsewhere.
        data = disk.entry(ledger_id, entry_id)
        return data is not None and data.endswith(self._history.payload(ledger_id, entry_id))

    # -- what the product says ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """What the product logs goes into the story; an error that the scenario does not expect is a
        violation."""
        logger = logging.getLogger("magnetar")
        handler = _Listening(self)
        before = logger.propagate, logger.level
        logger.propagate = False
        logger.setLevel(logging.INFO if self.world.log is not None else logging.ERROR)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = before[0]
            logger.setLevel(before[1])

    def heard(self, record: logging.LogRecord) -> None:
        """From the product."""
        if self._is_over:
            return
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, MagnetarError | OSError):
            place = "".join(traceback.format_tb(error.__traceback__)[-1:]).strip()
            self._history.violation("unexpected", f"{record.getMessage()}: {error!r} {place}")
        if self.world.log is not None:
            self.world.log.append(f"{self.world.now_us}   {record.name}: {record.getMessage()}")


class _Listening(logging.Handler):
    def __init__(self, story: ClusterStory) -> None:
        super().__init__()
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        self._story.heard(record)
