"""`./dev chaos transactions`: transactions while processes are killed, and the check of all that clients saw.

    ./dev chaos transactions [--on standalone|bookies|etcd|zk] [--minutes N] [--inputs N] [--seed S]

Story after story on the same brokers, each with topics of its own: two workers take inputs from a topic,
write each to two topics and acknowledge it, in transactions; two readers follow the outputs, and others read
them anew. Meanwhile a broker, the broker of a coordinator or of a topic, or a bookie is killed every few
seconds. At the end of a story everything is read and checked (`history.py`), and at the end of the run read
again after a kill of all brokers. The exit code is 1 when a promise is broken; the folder with the logs stays
then.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from chaos.transactions.history import History, Reading, faults, left_open, same_again
from chaos.transactions.links import LostError
from chaos.transactions.places import KINDS, Place, place, until
from chaos.transactions.topics import SUBSCRIPTION, Topics, fill, read
from chaos.transactions.worker import Worker

_WORKERS: Final = 2
_STUCK_S: Final = 400.0
"""A story in which nothing is committed for so long is stuck."""
_CALM_S: Final = 90.0
"""Longest wait at the end of a story until nothing is open any more, and until followers have seen all."""
_KEPT: Final = 20
"""Stories whose topics are read again at the end."""


def again(act: Callable[[], object], seconds: float = _STUCK_S) -> None:
    """Does it until no broker is missed. Raises LostError when that takes longer."""
    end_s = time.monotonic() + seconds
    while True:
        try:
            act()
        except LostError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)  # between two looks at whether there is a broker
        else:
            return


class Story:
    """One."""

    def __init__(self, where: Place, name: str, seed: int, options: argparse.Namespace) -> None:
        base = f"persistent://public/default/{name}"
        self.topics = Topics(f"{base}-in", (f"{base}-out-0", f"{base}-out-1"))
        self.history = History(options.inputs)
        self._place = where
        self._every_s = options.every or where.every_s
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._workers = [
            Worker(number, where.where, self.topics, self.history, seed + number, at_once=options.at_once)
            for number in range(_WORKERS)
        ]

    def run(self) -> dict[str, list[str]]:
        """Lives it through; what the outputs have in the end. Raises LostError when they cannot be read."""
        history, chance = self.history, self._chance
        again(partial(fill, self._place.where, self.topics, history.count))
        threads = [self._thread(partial(each.run, self._goes_on)) for each in self._workers]
        followers = [self._thread(partial(self._follow, number)) for number in range(2)]
        progress, since_s = 0, time.monotonic()
        while any(each.is_alive() for each in threads) and self._goes_on():
            threads[0].join(chance.uniform(0.2, 1.8) * self._every_s)
            if len(history.done) > progress:
                # The work goes on since the last kill: time for another one.
                if any(each.is_alive() for each in threads):
                    history.figures[f"kills of {self._place.strike(chance, self._all())}"] += 1
                    self._look("looked")
                progress, since_s = len(history.done), time.monotonic()
            elif time.monotonic() - since_s > _STUCK_S:
                history.wrong.append(f"T11: nothing was committed for {_STUCK_S:.0f} s, {progress} are done")
                self._over.set()
        outputs = self._end(followers)
        self._over.set()
        for each in followers:
            each.join()
        return outputs

    def _all(self) -> tuple[str, ...]:
        return (self.topics.source, *self.topics.outs)

    def _goes_on(self) -> bool:
        return not self._over.is_set()

    def _thread(self, act: Callable[[], None]) -> threading.Thread:
        def doing() -> None:
            try:
                act()
            except Exception as error:  # noqa: BLE001  # a thread's fault is the run's
                self.history.wrong.append(f"the run itself: {error!r}")
                self._over.set()

        thread = threading.Thread(target=doing, daemon=True)
        thread.start()
        return thread

    def _reading(self, number: int, reader: str) -> Reading:
        history = self.history
        name = f"{reader} {len(history.readings)}"
        reading = Reading(number, name, len(history.told_of), began_s=time.monotonic())
        self.history.readings.append(reading)
        return reading

    def _follow(self, number: int) -> None:
        """A live reader, which begins again where its broker is killed."""
        while self._goes_on():
            try:
                read(
                    self._place.where,
                    self.topics.outs[number],
                    self._reading(number, "a follower"),
                    self._goes_on,
                )
            except LostError:
                time.sleep(0.5)  # between two looks at whether there is a broker

    def _look(self, reader: str) -> list[list[str]]:
        """Reads both outputs, each with a new reader."""
        found = []
        for number, topic in enumerate(self.topics.outs):
            try:
                found.append(read(self._place.where, topic, self._reading(number, reader)))
            except LostError:
                self.history.figures["looks that were cut off"] += 1
        return found

    def _end(self, followers: list[threading.Thread]) -> dict[str, list[str]]:
        history, place_ = self.history, self._place
        slow = "v3/transactions/slowTransactions/0"
        if not until(lambda: not left_open(history, place_.admin(slow)), _CALM_S):
            history.wrong.append("T18: transactions are open though their clients were told of an end")
        path = f"v2/{self.topics.source.replace('://', '/')}/stats"
        if not until(lambda: place_.admin(path)["subscriptions"][SUBSCRIPTION]["msgBacklog"] == 0, _CALM_S):
            history.wrong.append("T4: all inputs were acknowledged, and there is a backlog")
        outputs: list[list[str]] = []

        def all_of_it() -> None:
            outputs[:] = self._look("at the end")
            if len(outputs) < 2:
                raise LostError("an output cannot be read")

        again(all_of_it)

        def followed() -> bool:
            newest = {each.topic: each for each in history.readings if each.reader.startswith("a follower")}
            return all(each.is_alive() for each in followers) and all(
                len(newest[number].seen) >= len(outputs[number]) for number in range(2)
            )

        if not until(followed, _CALM_S):
            history.wrong.append("T2: a reader that follows an output does not come to its end")
        history.wrong = list(faults(history, outputs))
        return dict(zip(self.topics.outs, outputs, strict=True))


class Run:
    """Stories until the time is over."""

    def __init__(self, where: Place, options: argparse.Namespace) -> None:
        self._place = where
        self._options = options
        self._ends: Counter[str] = Counter()
        self._figures: Counter[str] = Counter()
        self._stories = 0
        self._outputs: list[dict[str, list[str]]] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        """All of it, with a line for each story."""
        end_s = time.monotonic() + 60 * self._options.minutes
        while not self._stories or (time.monotonic() < end_s and not self.wrong):
            self._stories += 1
            name = f"story-{self._stories}"
            story = Story(self._place, name, self._options.seed + 1_000 * self._stories, self._options)
            began_s = time.monotonic()
            try:
                self._outputs = [*self._outputs, story.run()][-_KEPT:]
            except LostError as error:
                story.history.wrong.append(f"T2: an output cannot be read: {error}")
            self._count(name, story.history, time.monotonic() - began_s)
        self._place.kill_all()
        self._figures["kills of all brokers"] += 1
        for before in self._outputs:
            after: dict[str, list[str]] = {}

            def look(after: dict[str, list[str]] = after, before: dict[str, list[str]] = before) -> None:
                for topic in before:
                    after[topic] = read(self._place.where, topic, Reading(0, "again"))

            try:
                again(look)
            except LostError as error:
                self.wrong.append(f"T20: {', '.join(before)} cannot be read: {error}")
                continue
            self.wrong += same_again(before, after)

    def _count(self, name: str, history: History, seconds: float) -> None:
        ends = history.counts()
        self._ends += ends
        self._figures += history.figures
        self._figures["inputs"] += history.count
        self._figures["looks and followers"] += len(history.readings)
        self.wrong += [f"{name}: {each}" for each in history.wrong]
        kills = sum(count for what, count in history.figures.items() if what.startswith("kills"))
        print(
            f"{name}: {seconds:.0f} s, {ends['committed']} committed, {ends['aborted']} aborted,"
            f" {kills} kills, {len(history.wrong)} wrong; {sum(self._ends.values())} transactions so far",
            flush=True,
        )

    def summary(self) -> list[str]:
        """What was done, and what is wrong."""
        ends = ", ".join(f"{count:,} {how}" for how, count in sorted(self._ends.items()))
        figures = ", ".join(f"{count:,} {what}" for what, count in sorted(self._figures.items()))
        said = [f"{sum(self._ends.values()):,} transactions in {self._stories} stories: {ends}", figures]
        return [*said, *self.wrong[:50], f"{len(self.wrong)} promises broken" if self.wrong else "all hold"]


def main() -> int:
    """1 when a promise is broken, 3 when this machine cannot run it."""
    parser = argparse.ArgumentParser(prog="./dev chaos transactions", description=__doc__)
    parser.add_argument("--on", choices=KINDS, default="standalone", help="what is killed (standalone)")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long; a story is ended (2)")
    parser.add_argument("--inputs", type=int, default=4_000, help="of a story (4000)")
    parser.add_argument(
        "--every", type=float, default=0.0, help="seconds between kills, on average (2 alone, 5 of a cluster)"
    )
    parser.add_argument("--at-once", type=int, default=50, help="transactions of a worker at once (50)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--folder", type=Path, help="where data and logs go (a new one)")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="magnetar-transactions-"))
    print(f"seed {options.seed}, on {options.on}, in {folder}", flush=True)
    from chaos.processes import NotHereError

    try:
        with place(options.on, folder) as where:
            run = Run(where, options)
            run.run()
    except NotHereError as error:
        print(f"this machine cannot: {error}", file=sys.stderr)
        return 3
    print("\n".join(run.summary()))
    if run.wrong:
        return 1
    if options.folder is None:
        shutil.rmtree(folder)
    return 0
