"""One input after the other, each within its time, the process within its memory."""

from __future__ import annotations

import gc
import hashlib
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from fuzzing.harness import Harness
from fuzzing.mutation import Mutator

_COLLECTED_EVERY: Final = 20_000


class TooLongError(BaseException):
    """An input took more of a processor than its harness allows. No Exception: parsers must not catch it."""


@dataclass
class Outcome:
    """What came of many executions."""

    executions: int = 0
    refused: int = 0
    kept: int = 0
    """Inputs that did something new."""
    slowest_s: float = 0.0
    grown_bytes: int = 0
    digest: str = ""
    """Digest of all answers."""
    findings: list[tuple[bytes, str]] = field(default_factory=list)
    """Inputs, and what is wrong with what they did."""


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError


def execute(harness: Harness, data: bytes) -> object:
    """What the harness gives; the name of the refusal where it is refused. Raises what it must not raise."""
    signal.setitimer(signal.ITIMER_PROF, harness.seconds_max)
    try:
        return harness.run(data)
    except harness.refusals as error:
        return type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def run(
    harness: Harness,
    inputs: list[bytes],
    *,
    seed: int,
    count_max: int,
    seconds: float,
    findings_max: int = 10,
    note: Callable[[bytes], None] = lambda _data: None,
) -> Outcome:
    """Known inputs first, then new ones, until `count_max` or `seconds`; `note` hears of each before."""
    former = signal.signal(signal.SIGPROF, _too_long)
    mutator = Mutator(inputs, harness.words, harness.input_bytes_max, seed)
    outcome, digest, shapes = Outcome(), hashlib.sha256(), set[object]()
    until = time.monotonic() + seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        while outcome.executions < count_max and (outcome.executions % 64 or time.monotonic() < until):
            number = outcome.executions
            data = inputs[number] if number < len(inputs) else mutator.next()
            note(data)
            outcome.executions += 1
            began = time.thread_time()
            try:
                answer = execute(harness, data)
            except TooLongError:
                outcome.findings.append((data, f"took more than {harness.seconds_max} s of a processor"))
            except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
                outcome.findings.append((data, f"{type(error).__name__}: {error}"))
            else:
                outcome.slowest_s = max(outcome.slowest_s, time.thread_time() - began)
                text = repr(answer)
                digest.update(text.encode("utf-8", "replace"))
                is_refusal = isinstance(answer, str) and answer.endswith("Error")
                outcome.refused += is_refusal
                # Answers of a new kind and size are where new paths are, as far as one sees from outside.
                shape = (is_refusal and answer, len(text).bit_length(), text[:24])
                if shape not in shapes and len(shapes) < 10_000:
                    shapes.add(shape)
                    outcome.kept += 1
                    mutator.keep(data)
            if len(outcome.findings) >= findings_max:
                break
            if number % _COLLECTED_EVERY == _COLLECTED_EVERY - 1:
                gc.collect()
    finally:
        signal.signal(signal.SIGPROF, former)
    outcome.grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) << 10
    outcome.digest = digest.hexdigest()
    return outcome
