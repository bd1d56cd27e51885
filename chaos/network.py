"""A network of namespaces: every member has an address of its own, and links that can be cut, lossy and slow.

All of it lies in the network namespace of the calling process, which must be one of its own (`isolation.py`):
a bridge, and a namespace and a pair of links for each member. What goes to a member passes a filter of the
kernel (classic BPF on the member's link), which drops by source or by chance, silently and one way. The
bridge has an address too, from which the rig asks the members; that traffic is never cut.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_PREFIX: Final = "10.66.0."
_HUB: Final = 254
_PASS: Final = "6 0 0 4294967295"
_DROP: Final = "6 0 0 2"
_LOAD_TYPE: Final = "40 0 0 12"
_LOAD_SOURCE: Final = "32 0 0 26"
_LOAD_CHANCE: Final = "32 0 0 4294963256"
_ETHERTYPE_IP: Final = 0x0800
_CHANCES: Final = 1 << 32


class Network:
    """The links of some members."""

    def __init__(self, members: tuple[str, ...]) -> None:
        """Makes them. Raises subprocess.CalledProcessError when the machine refuses."""
        self._numbers = {name: number for number, name in enumerate(members, 1)}
        self._dropped: dict[str, set[str]] = {name: set() for name in members}
        self._lost_percent = dict.fromkeys(members, 0.0)
        Path("/run/netns").mkdir(exist_ok=True)
        _ip("link set lo up")
        _ip("link add hub type bridge")
        _ip(f"addr add {_PREFIX}{_HUB}/24 dev hub")
        _ip("link set hub up")
        for name in members:
            _ip(f"netns add {name}")
            _ip(f"link add {name} type veth peer name eth0 netns {name}")
            _ip(f"link set {name} master hub up")
            _ip(f"-n {name} addr add {self.address(name)}/24 dev eth0")
            _ip(f"-n {name} link set eth0 up")
            _ip(f"-n {name} link set lo up")
            _run("tc", "qdisc", "add", "dev", name, "clsact")

    def address(self, name: str) -> str:
        """The address of a member."""
        return f"{_PREFIX}{self._numbers[name]}"

    @staticmethod
    def command(name: str) -> list[str]:
        """What starts a program on a member's network; the program follows it, and takes over the process."""
        return ["nsenter", f"--net=/run/netns/{name}"]

    def cut(self, source: str, target: str) -> None:
        """What `source` sends to `target` is lost from now on."""
        self._dropped[target].add(source)
        self._filter(target)

    def mend(self, source: str, target: str) -> None:
        """Undoes `cut`."""
        self._dropped[target].discard(source)
        self._filter(target)

    def lose(self, name: str, percent: float) -> None:
        """Packets to a member are lost, this percentage of them."""
        self._lost_percent[name] = percent
        self._filter(name)

    def slow_down(self, name: str, kilobits: float) -> None:
        """Limits what goes to and from a member, in kilobits a second; 0: no limit."""
        for prefix, device in (([], name), (["-n", name], "eth0")):
            if kilobits:
                limit = ["tbf", "rate", f"{kilobits:.0f}kbit", "burst", "32kb", "latency", "800ms"]
                _run("tc", *prefix, "qdisc", "replace", "dev", device, "root", *limit)
            else:
                _run("tc", *prefix, "qdisc", "del", "dev", device, "root")

    def heal(self) -> None:
        """Undoes every cut and loss."""
        for name in self._numbers:
            if self._dropped[name] or self._lost_percent[name]:
                self._dropped[name].clear()
                self._lost_percent[name] = 0.0
                self._filter(name)

    def _filter(self, name: str) -> None:
        _run("tc", "filter", "del", "dev", name, "egress")
        sources = [self.address(each) for each in sorted(self._dropped[name])]
        if sources or self._lost_percent[name]:
            code = bytecode(sources, self._lost_percent[name], f"{_PREFIX}{_HUB}")
            _run("tc", "filter", "add", "dev", name, "egress", "bpf", "da", "bytecode", code)


def bytecode(sources: list[str], lost_percent: float, spared: str) -> str:
    """The program of a filter, as `tc` takes it: drops packets of the sources, and a share of the others, but
    nothing from `spared`, and nothing that is not IPv4.

    An instruction: code, jump when true, jump when false, operand; jumps count the instructions between.
    """
    body = [f"21 0 1 {_number(spared)}", _PASS]
    for source in sources:
        body += [f"21 0 1 {_number(source)}", _DROP]
    if lost_percent:
        # A number of chance that is greater than this one passes.
        body += [_LOAD_CHANCE, f"37 1 0 {int(_CHANCES * lost_percent / 100)}", _DROP]
    body.append(_PASS)
    program = [_LOAD_TYPE, f"21 1 0 {_ETHERTYPE_IP}", _PASS, _LOAD_SOURCE, *body]
    return ",".join([str(len(program)), *program]) + ","


def _number(address: str) -> int:
    return int.from_bytes(bytes(map(int, address.split("."))), "big")


def _ip(arguments: str) -> None:
    _run("ip", *arguments.split())


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
