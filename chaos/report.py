"""What a run found, as text and as one page of HTML that needs nothing else. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from chaos.figures import Second, by_second, pauses, percentile, told
from chaos.outcome import Outcome
from chaos.rules import RULES

_WIDTH: Final = 1000
_LEFT: Final = 110
_ROW: Final = 16
_PLOT: Final = 110
_GAP: Final = 34
_COLOURS: Final = {
    "kill": "#b3261e",
    "stop": "#e8710a",
    "pause": "#9334e6",
    "cut": "#1a73e8",
    "one way": "#12a4af",
    "isolate": "#185abc",
    "lossy": "#7baaf7",
    "slow": "#aecbfa",
    "clock": "#f9ab00",
    "full disk": "#5f6368",
    "disk error": "#202124",
    "move": "#188038",
    "metadata away": "#b3261e",
}
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1040px; color: #202124; padding: 0
1em } svg { width: 100%; height: auto } text { font: 11px system-ui, sans-serif; fill: #444 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .2em .8em .2em 0; text-align: left;
vertical-align: top; border-bottom: 1px solid #ddd } .bad { color: #b3261e; font-weight: 600 } .good { color:
#188038 }
"""


def summary(outcome: Outcome) -> list[str]:
    """Lines for a terminal."""
    sent, acked, stored, doubled = _counts(outcome)
    latencies_s = [
        each for second in by_second(outcome.events, outcome.began_s) for each in second.latencies_s
    ]
    half_s, most_s = percentile(latencies_s, 0.5), percentile(latencies_s, 0.99)
    longest_s = max(latencies_s, default=0.0)
    lines = [
        f"{sent} sent, {acked} acknowledged, {stored} stored, {doubled} of them more than once",
        f"latency p50 {half_s * 1000:.0f} ms, p99 {most_s:.2f} s, longest {longest_s:.2f} s",
        f"{len(outcome.done)} faults: {_listed(Counter(fault.kind for _, _, fault in outcome.done))}",
        f"clients were told: {_listed(told(outcome.events)) or 'no errors'}",
    ]
    lines += [f"VIOLATION {each}" for each in outcome.violations]
    return [*lines, f"{len(RULES)} rules: {'BROKEN' if outcome.violations else 'all hold'}"]


def _counts(outcome: Outcome) -> tuple[int, int, int, int]:
    topics = outcome.topics.values()
    sent = sum(len(each.sent) for each in topics)
    acked = sum(one.acked_s is not None for each in topics for one in each.sent.values())
    copies = Counter((each.name, value) for each in topics for _, value in each.stored)
    return sent, acked, len(copies), sum(count > 1 for count in copies.values())


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{count} × {what}" for what, count in counted.most_common())


def page(title: str, outcome: Outcome) -> str:
    """The whole page."""
    verdict = (
        f'<p class="bad">{len(outcome.violations)} violations</p><ul>'
        + "".join(f"<li>{escape(str(each))}</li>" for each in outcome.violations)
        + "</ul>"
        if outcome.violations
        else f'<p class="good">No violation: {len(RULES)} rules hold.</p>'
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Chaos: {escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>Chaos: {escape(title)}</h1>{verdict}"
        f"<p>{'<br>'.join(map(escape, summary(outcome)[:4]))}</p>"
        f"{timeline(outcome)}{_topics(outcome)}{_faults(outcome)}{_lives(outcome)}</html>\n"
    )


def timeline(outcome: Outcome) -> str:
    """The picture: faults by member, receipts, latencies and errors over time."""
    seconds = by_second(outcome.events, outcome.began_s)
    end_s = max(1, len(seconds))
    rows = sorted({name for _, _, fault in outcome.done for name in fault.targets})
    top = 20 + _ROW * len(rows)
    height = top + 3 * (_PLOT + _GAP) + 10

    def x(at_s: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * min(max(at_s, 0.0), end_s) / end_s

    told_of = "faults, receipts, latencies and errors"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{told_of}">']
    parts += [f'<text x="4" y="{32 + row * _ROW}">{escape(name)}</text>' for row, name in enumerate(rows)]
    for from_s, to_s, fault in outcome.done:
        left, right = x(from_s - outcome.began_s), x(to_s - outcome.began_s)
        size = f'width="{max(2.0, right - left):.1f}" height="{_ROW - 4}"'
        for name in fault.targets:
            at = f'x="{left:.1f}" y="{22 + rows.index(name) * _ROW}"'
            title = f"<title>{escape(str(fault))}</title>"
            parts.append(f'<rect {at} {size} fill="{_colour(fault.kind)}">{title}</rect>')
    plots: list[tuple[str, Callable[[Second], float], str]] = [
        ("receipts/s", lambda each: float(each.acked), "#188038"),
        ("latency p99, s", lambda each: percentile(each.latencies_s, 0.99), "#1a73e8"),
        ("errors/s", lambda each: float(each.errors), "#b3261e"),
    ]
    for number, (name, value, colour) in enumerate(plots):
        y = top + number * (_PLOT + _GAP) + _GAP
        parts.append(_plot(name, [value(each) for each in seconds], colour, y, x))
    return "".join([*parts, "</svg>"])


def _plot(name: str, values: Sequence[float], colour: str, top: int, x: Callable[[float], float]) -> str:
    most = max([*values, 0.001])
    points = " ".join(
        f"{x(at + 0.5):.1f},{top + _PLOT - _PLOT * value / most:.1f}" for at, value in enumerate(values)
    )
    base = top + _PLOT
    ticks = "".join(
        f'<text x="{x(at):.1f}" y="{base + 13}">{at} s</text>'
        for at in range(0, len(values), max(1, round(len(values) / 10)))
    )
    return (
        f'<text x="4" y="{top + 12}">{escape(name)}</text><text x="4" y="{top + 26}">0 to {most:.3g}</text>'
        f'<line x1="{x(0)}" y1="{base}" x2="{_WIDTH - 10}" y2="{base}" stroke="#bbb"/>{ticks}'
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    )


def _colour(kind: str) -> str:
    for name, colour in _COLOURS.items():
        if kind.startswith(name):
            return colour
    return "#5f6368"


def _topics(outcome: Outcome) -> str:
    longest = pauses(outcome.events)
    rows = "".join(
        f"<tr><td>{escape(name)}<td>{len(topic.sent)}<td>"
        f"{sum(each.acked_s is not None for each in topic.sent.values())}<td>{len(topic.stored)}"
        f"<td>{longest.get(name, 0.0):.2f} s<td>{escape(', '.join(sorted(topic.served)))}"
        for name, topic in sorted(outcome.topics.items())
    )
    head = "<tr><th>topic<th>sent<th>acknowledged<th>stored copies<th>longest pause<th>served by in the end"
    return f"<h2>Topics</h2><table>{head}{rows}</table>"


def _faults(outcome: Outcome) -> str:
    rows = "".join(
        f"<tr><td>{from_s - outcome.began_s:.1f} s<td>{escape(fault.kind)}"
        f"<td>{escape(' '.join(fault.targets))}<td>{to_s - from_s:.1f} s<td>{fault.strength or ''}"
        for from_s, to_s, fault in sorted(outcome.done, key=lambda each: each[0])
    )
    return f"<h2>Faults</h2><table><tr><th>at<th>kind<th>targets<th>for<th>strength{rows}</table>"


def _lives(outcome: Outcome) -> str:
    rows = "".join(f"<tr><td>{escape(name)}<td>{count}" for name, count in sorted(outcome.lives.items()))
    return f"<h2>Starts of each server</h2><table>{rows}</table>"
