"""The network between simulated processes: connections that keep the order of bytes, and everything else not.

What is lost on the way is sent again by the machines, so it comes late; what cannot get through waits, for
as long as the connection lives. Bytes arrive cut up anywhere. A connection may be reset at any time; a
machine that crashed says nothing, until it is back and asked about connections that it does not know.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sim.cluster.loop import PROCESS, Process, SimLoop
from sim.world import World

_RESET: Final = ConnectionResetError("reset by peer")
_AGAIN_US: Final = 90_000
"""After so long a machine sends again what got lost."""


@dataclass(frozen=True, slots=True)
class WireFaults:
    """How bad it is; chances between 0 and 1."""

    loss: float = 0.0
    slow: float = 0.0
    """Chance that a packet takes up to `slow_us` instead of `usual_us`."""
    tearing: float = 0.0
    """Chance that a write arrives in two parts, with others in between on other connections."""
    resets: float = 0.0
    """Chance that a connection is reset by a write."""
    breaks: float = 0.0
    """Chance that a connection to the store breaks at a write, which is done or not."""
    usual_us: int = 400
    slow_us: int = 60_000


class Channel:
    """One direction between two processes: in order, with delays, and silent while it is cut."""

    __slots__ = ("_arrives_us", "_stalled", "_wires", "is_dead", "refused", "source", "target")

    def __init__(self, wires: Wires, source: Process, target: Process) -> None:
        self._wires = wires
        self.source = source
        self.target = target
        self.is_dead = False
        self.refused: Callable[[], None] | None = None
        """What happens at the source when the target's machine is back and does not know the channel."""
        self._arrives_us = 0
        self._stalled: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def send(self, action: Callable[..., None], *arguments: Any) -> None:
        """Calls `action` at the target some time, after what was sent before."""
        world = self._wires.world
        self._arrives_us = max(self._arrives_us, world.now_us + self._wires.delay_us())
        world.at(self._arrives_us - world.now_us, self._arrive, action, arguments)

    def _arrive(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        wires = self._wires
        if self.is_dead:
            return
        if self._stalled or wires.is_cut(self.source.name, self.target.name):
            self._stalled.append((action, arguments))
            wires.stalled(self)
        elif self.target.is_up:
            wires.loop.within(self.target, action, *arguments)
        elif self.refused is not None and wires.is_back(self.target):
            self.is_dead = True
            wires.world.at(wires.delay_us(), wires.loop.within, self.source, self.refused)

    def go_on(self) -> None:
        """Delivers what waited for the cut to end."""
        waiting, self._stalled = self._stalled, deque()
        for action, arguments in waiting:
            self.send(action, *arguments)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, wires: Wires, own: Process, other: Process, peer: str) -> None:
        super().__init__()
        self.protocol: asyncio.BufferedProtocol | None = None
        self.other: SimTransport
        self.out = Channel(wires, own, other)
        self.out.refused = lambda: self.lost(_RESET)
        self._wires = wires
        self._peer = peer
        self._closing = False
        self._was_told = False
        self._paused = False
        self._held: list[bytes] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._peer, 0) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        held, self._held = self._held, []
        for data in held:
            self._wires.loop.call_soon(self.receive, data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        wires, random = self._wires, self._wires.world.random
        data = bytes(data)
        faults = wires.faults
        if faults.resets and random.random() < faults.resets:
            wires.world.note("connection", self.out.source.name, self.out.target.name, "is reset")
            self.reset()
            return
        if faults.tearing and len(data) > 1 and random.random() < faults.tearing:
            at = random.randrange(1, len(data))
            self.out.send(self.other.receive, data[:at])
            data = data[at:]
        self.out.send(self.other.receive, data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def receive(self, data: bytes) -> None:
        """Bytes arrive."""
        if self._closing:
            return
        if self._paused or self._held:
            self._held.append(data)
            return
        view = memoryview(data)
        assert self.protocol is not None
        while view and not self._closing:
            buffer = memoryview(self.protocol.get_buffer(-1))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self.protocol.buffer_updated(count)
            view = view[count:]

    def close(self) -> None:
        if not self._closing:
            self.out.send(self.other.lost, None)
            self._wires.loop.call_soon(self.lost, None)
            self._closing = True

    def abort(self) -> None:
        self.close()

    def reset(self) -> None:
        """Both ends lose it, each at its time."""
        self.out.is_dead = self.other.out.is_dead = True
        wires = self._wires
        for end in (self, self.other):
            wires.world.at(wires.delay_us(), wires.loop.within, end.out.source, end.lost, _RESET)

    def lost(self, error: Exception | None) -> None:
        """This end hears that the connection is over."""
        self._closing = True
        self.out.is_dead = self.out.is_dead or error is not None
        if not self._was_told and self.protocol is not None:
            self._was_told = True
            self.protocol.connection_lost(error)


class Wires:
    """The network: which addresses can be reached, and their faults."""

    def __init__(self, world: World, loop: SimLoop, faults: WireFaults) -> None:
        self.world = world
        self.loop = loop
        self.faults = faults
        self._machines: dict[str, list[Process]] = {}
        self._servers: dict[str, tuple[Process, Callable[[], asyncio.BufferedProtocol]]] = {}
        self._open: list[SimTransport] = []
        self._cut: set[tuple[str, str]] = set()
        self._stalled: list[Channel] = []
        self._listeners: list[Callable[[str, str], None]] = []
        loop.wires = self

    # -- faults -------------------------------------------------------------------------------------

    def delay_us(self) -> int:
        """How long the next packet takes."""
        faults, random = self.faults, self.world.random
        longest_us = faults.slow_us if faults.slow and random.random() < faults.slow else faults.usual_us
        delay_us = 1 + int(longest_us * random.random())
        if faults.loss and random.random() < faults.loss:
            delay_us += _AGAIN_US
        return delay_us

    def is_back(self, process: Process) -> bool:
        """Whether the machine of a process that has ended runs another one."""
        return any(later.is_up for later in self._machines.get(process.name, ()))

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one to the other."""
        return (source, target) in self._cut

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more; the other direction is left as it is."""
        self.world.note("cut", source, target)
        self._cut.add((source, target))
        for listener in self._listeners:
            listener(source, target)

    def heard_of_cuts(self, listener: Callable[[str, str], None]) -> None:
        """Tells of every cut."""
        self._listeners.append(listener)

    def mend(self, source: str, target: str) -> None:
        """Undoes `cut`."""
        if (source, target) in self._cut:
            self.world.note("mended", source, target)
            self._cut.discard((source, target))
            waiting, self._stalled = self._stalled, []
            for channel in waiting:
                if self.is_cut(channel.source.name, channel.target.name):
                    self._stalled.append(channel)
                else:
                    channel.go_on()

    def heal(self) -> None:
        """Everything arrives from now on, and soon."""
        self.faults = WireFaults()
        for pair in sorted(self._cut):
            self.mend(*pair)

    def stalled(self, channel: Channel) -> None:
        """From a channel: something waits there for a cut to end."""
        if channel not in self._stalled:
            self._stalled.append(channel)

    # -- connections --------------------------------------------------------------------------------

    def listen(self, address: str, process: Process, factory: Callable[[], asyncio.BufferedProtocol]) -> None:
        """Takes connections for `address`, as long as `process` lives."""
        self._servers[address] = (process, factory)
        self._machines.setdefault(process.name, []).append(process)
        process.ends.append(lambda: self._gone(process))

    def _gone(self, process: Process) -> None:
        """Its machine is silent; half of the time the others hear of it at once."""
        hear = self.world.random.random() < 0.5
        for transport in self._open:
            ends = transport.out.source, transport.out.target
            if process in ends and hear:
                transport.reset()
        self._open = [
            transport
            for transport in self._open
            if process not in (transport.out.source, transport.out.target)
        ]

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], address: str
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        """A connection from the process that asks. Raises OSError; waits for ever when nothing answers."""
        own = PROCESS.get()
        assert own is not None
        made: asyncio.Future[SimTransport | None] = self.loop.create_future()
        name = address.partition(":")[0]

        def arrived() -> None:
            server = self._servers.get(address)
            if self.is_cut(own.name, name) or self.is_cut(name, own.name):
                return
            if server is None or not server[0].is_up:
                self.world.at(self.delay_us(), self.loop.within, own, answered, None)
                return
            process, server_factory = server
            here = SimTransport(self, own, process, address)
            there = SimTransport(self, process, own, own.name)
            here.other, there.other = there, here
            self._open.append(here)

            def accept() -> None:
                there.protocol = server_factory()
                there.protocol.connection_made(there)

            self.loop.within(process, accept)
            there.out.send(answered, here)

        def answered(transport: SimTransport | None) -> None:
            if not made.done():
                made.set_result(transport)
            elif transport is not None:
                transport.abort()

        self.world.at(self.delay_us(), arrived)
        transport = await made
        if transport is None:
            raise ConnectionRefusedError(f"nothing listens at {address}")
        if transport.is_closing():
            raise ConnectionResetError(f"{address} has gone")
        protocol = transport.protocol = factory()
        protocol.connection_made(transport)
        return transport, protocol
