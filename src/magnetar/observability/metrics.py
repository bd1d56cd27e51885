"""Metrics and their text form.

There are two ways to add a metric. A `Counter` or `Gauge` of the registry is a plain object whose `value` its
owner changes. A collector is a function that is called at each scrape and reads values that broker objects
hold anyway; use it for all that is counted per topic or per message.

Source: Prometheus text exposition format, version 0.0.4: a family is `# HELP`, `# TYPE` and its
samples, all together; backslash, newline and, in label values, the double quote are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import accumulate
from typing import Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

SERIES_MAX: Final = 100_000
"""Most series in one scrape, about 16 MB of text. A broker with more shows the first ones in the order of
collection, and the number of omitted ones."""

NO_LABELS: Final = ""


def labels(*pairs: tuple[str, str]) -> str:
    """Label names and values in the form that follows a metric's name; make it once per labelled object."""
    if not pairs:
        return NO_LABELS
    inner = ",".join(f'{name}="{_escaped(value).replace(_QUOTE, _ESCAPED_QUOTE)}"' for name, value in pairs)
    return f"{{{inner}}}"


_QUOTE: Final = '"'
_ESCAPED_QUOTE: Final = '\\"'


class Kind(Enum):
    """Types of metric families."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Counter:
    """A number that only grows. Its owner adds to `value` directly, which costs no call."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Gauge:
    """A number that goes up and down; the owner sets `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class _Family:
    __slots__ = ("help", "kind", "lines")

    def __init__(self, kind: Kind, text: str) -> None:
        self.kind = kind
        self.help = text
        self.lines: list[str] = []


class FamilyText(NamedTuple):
    """The text of one family in a scrape."""

    name: str
    head: str
    """Its help and its type, two lines."""
    samples: str
    """A line for each."""


class Exposition:
    """One scrape in the making."""

    def __init__(self, *, series_max: int = SERIES_MAX, process: str = "") -> None:
        """`process`: the value of a label `process` that every sample gets; "": no such label."""
        self._families: dict[str, _Family] = {}
        self._series_max = series_max
        self._process = f'process="{process}"' if process else ""
        self.series = 0
        """Samples taken."""
        self.dropped = 0
        """Samples refused because of the limit."""

    def add(self, name: str, kind: Kind, text: str, value: float, labelled: str = NO_LABELS) -> None:
        """Adds one sample. `text`: help text of the family; the first one counts. `labels` makes
        `labelled`."""
        if self.series >= self._series_max:
            self.dropped += 1
            return
        self.series += 1
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(kind, text)
        if self._process:
            labelled = self._of_process(labelled)
        family.lines.append(f"{name}{labelled} {_number(value)}\n")

    def _of_process(self, labelled: str) -> str:
        return f"{{{self._process},{labelled[1:]}" if labelled else f"{{{self._process}}}"

    def counter(self, name: str, text: str, value: float, labelled: str = NO_LABELS) -> None:
        """Adds a sample of a counter."""
        self.add(name, Kind.COUNTER, text, value, labelled)

    def gauge(self, name: str, text: str, value: float, labelled: str = NO_LABELS) -> None:
        """Adds a sample of a gauge."""
        self.add(name, Kind.GAUGE, text, value, labelled)

    def histogram(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        counts: Sequence[int],
        total: float,
        labelled: str = NO_LABELS,
    ) -> None:
        """Adds a histogram. `counts[i]`: observations at or below `bounds[i]` and above the bound before; the
        last count is above all bounds. `total`: sum of the observed values."""
        assert len(counts) == len(bounds) + 1
        size = len(counts) + 2
        if self.series + size > self._series_max:
            self.dropped += size
            return
        self.series += size
        family = self._families.setdefault(name, _Family(Kind.HISTOGRAM, text))
        running = list(accumulate(counts))
        if self._process:
            labelled = self._of_process(labelled)
        head = f"{labelled[:-1]}," if labelled else "{"
        for bound, count in zip((*bounds, math.inf), running, strict=True):
            family.lines.append(f'{name}_bucket{head}le="{_number(bound)}"}} {count}\n')
        family.lines.append(f"{name}_sum{labelled} {_number(total)}\n")
        family.lines.append(f"{name}_count{labelled} {running[-1]}\n")

    def render(self) -> str:
        """The text of the scrape."""
        return "".join(head + samples for _, head, samples in self.families())

    def families(self) -> Iterator[FamilyText]:
        """The text of the scrape, one family at a time, in the order of their first samples."""
        for name, family in self._families.items():
            head = f"# HELP {name} {_escaped(family.help)}\n# TYPE {name} {family.kind.value}\n"
            yield FamilyText(name, head, "".join(family.lines))


Collector = Callable[[Exposition], Iterable[None]]
"""Adds samples to a scrape, and yields where the event loop may get a turn."""


class Registry:
    """All metrics of this process."""

    def __init__(self, *, series_max: int = SERIES_MAX) -> None:
        self._series_max = series_max
        self._own: list[tuple[str, Kind, str, str, Counter | Gauge]] = []
        self._collectors: list[Collector] = []

    def counter(self, name: str, text: str, labelled: str = NO_LABELS) -> Counter:
        """A new counter; its name ends in `_total`."""
        counter = Counter()
        self._own.append((name, Kind.COUNTER, text, labelled, counter))
        return counter

    def gauge(self, name: str, text: str, labelled: str = NO_LABELS) -> Gauge:
        """A new gauge."""
        gauge = Gauge()
        self._own.append((name, Kind.GAUGE, text, labelled, gauge))
        return gauge

    def collector(self, collect: Collector) -> None:
        """Calls `collect` at every scrape, after the collectors that were added before."""
        self._collectors.append(collect)

    def scrape(self) -> Iterator[str]:
        """The text of a scrape in pieces, some of them empty; the event loop may get a turn between any
        two."""
        for family in self.families():
            yield "" if family is None else family.head + family.samples

    def families(self, process: str = "") -> Iterator[FamilyText | None]:
        """The families of a scrape; None where the event loop may get a turn too. `process`: see
        `Exposition`."""
        exposition = Exposition(series_max=self._series_max, process=process)
        for name, kind, text, labelled, metric in self._own:
            exposition.add(name, kind, text, metric.value, labelled)
        for collect in self._collectors:
            for _ in collect(exposition):
                yield None
        about = Exposition(process=process)
        about.gauge("magnetar_metrics_series", "Series in this scrape.", exposition.series)
        about.gauge(
            "magnetar_metrics_series_dropped",
            "Series left out of this scrape because of the limit of series.",
            exposition.dropped,
        )
        yield from exposition.families()
        yield from about.families()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
