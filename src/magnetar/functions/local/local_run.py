"""A run of a function in the foreground. Driver.

Between two calls the files of the code are looked at. New code takes the place of the old one when no call is
under way; connections, state and messages stay. What cannot be loaded is shown, and the old code goes on.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from magnetar.adminclient import paths
from magnetar.base.errors import ClientError
from magnetar.client.client import Client
from magnetar.functions.errors import CodeError
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.instance.running import Instance
from magnetar.functions.local.code_watch import CodeWatch

_MORE_S: Final = 1.0
"""Seconds between two looks for modules that the code has imported meanwhile."""

Say = Callable[[str], None]


class LocalAttendant:
    """What the instance turns to between two turns."""

    def __init__(self, watch: CodeWatch, say: Say) -> None:
        self._watch = watch
        self._say = say
        self._looked_s = 0.0
        self._errors = 0
        self._state = ""
        self.is_over = False
        """Set by Ctrl-C."""

    def interrupted(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C: the first one lets a call that is under way end, the second one does not."""
        if self.is_over:
            raise KeyboardInterrupt
        self.is_over = True

    def watches(self) -> None:
        """The code was loaded: its files are known now."""
        self._watch.look()

    @property
    def wait_s(self) -> float:
        """See `Attendant`: what cannot be loaded is shown at once after a save."""
        return 0.2

    def filenos(self) -> list[int]:
        """See `Attendant`."""
        return []

    def triggered(self, trigger: str, value: bytes | None) -> None:
        """See `Attendant`."""

    def attend(self, instance: Instance) -> None:
        """Tells what has happened, and takes new code."""
        instance.function.encoder.unsent = self._show
        # After `continue` a debugger takes Ctrl-C.
        if signal.getsignal(signal.SIGINT) != self.interrupted:
            signal.signal(signal.SIGINT, self.interrupted)
        self._tell(instance)
        now_s = time.monotonic()
        if now_s - self._looked_s >= _MORE_S:
            self._looked_s = now_s
            self._watch.look_for_more()
        # Before each turn: a message that comes after a save gets the new code.
        changed = self._watch.changed()
        if changed:
            self._renew(instance, changed)

    def _show(self, result: object) -> None:
        """A result that goes to no topic."""
        self._say(repr(result))

    def _renew(self, instance: Instance, changed: list[str]) -> None:
        names = ", ".join(changed)
        old = self._watch.forget()
        try:
            instance.renew()
        except CodeError as error:
            self._watch.put_back(old)
            self._say(f"{names}: the old code goes on until the next save, because of\n{error}")
        else:
            self._say(f"{names}: new code from the next message on")
        self._watch.look()

    def _tell(self, instance: Instance) -> None:
        counters = instance.counters
        new = counters.total.user_exceptions - self._errors
        if new:
            self._errors += new
            for text, _ in counters.user_errors[-new:]:
                self._say(text)
        state = f"{counters.state}: {counters.detail}" if counters.detail else counters.state
        if state != self._state:
            self._state = state
            self._say(state)


def run_locally(plan: InstancePlan, client: Client, say: Say, *, keeps: bool) -> None:
    """Runs until Ctrl-C; a call that is under way ends first, at the second Ctrl-C at once.

    `keeps`: whether the subscription stays in the end. Raises CodeError, StateFileError.
    """
    sys.dont_write_bytecode = True
    attendant = LocalAttendant(CodeWatch(Path(plan.package)), say)
    instance = Instance(plan, attendant, client)
    attendant.watches()
    before = signal.signal(signal.SIGINT, attendant.interrupted)
    try:
        instance.run()
    finally:
        signal.signal(signal.SIGINT, before)
        topics = instance.function.facilities.input_topics()
        instance.close()
        if not keeps:
            _unsubscribe(client, plan, topics, say)


def _unsubscribe(client: Client, plan: InstancePlan, topics: list[str], say: Say) -> None:
    for name in topics:
        try:
            path = paths.subscription(name, plan.subscription)
            client.admin.call("DELETE", path, query={"force": "true"})
        except ClientError as error:
            say(f"the subscription {plan.subscription} of {name} stays: {error}")
