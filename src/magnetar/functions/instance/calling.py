"""Calls the function with messages, one after the other, and turns results into messages to publish.

The loop over messages is the hot path: a call that returns bytes or text, without context and properties,
costs half a microsecond beside the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.functions.errors import BadResultError
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import Output, OutputMessage
from magnetar.functions.instance.call_effects import CallEffects, EntryMessage
from magnetar.functions.instance.limits import described
from magnetar.functions.instance.loading import LoadedFunction, user_trace
from magnetar.functions.instance.outcome import TRIGGER, CallOutcome
from magnetar.functions.instance.retries import FailedMessage
from magnetar.functions.sdk.context import FunctionContext
from magnetar.functions.sdk.function import OutputRecord
from magnetar.functions.sdk.serde import output_bytes
from magnetar.functions.state.pending_state import PendingState

Decoder = Callable[[bytes], object] | None
"""None: the function gets the bytes."""
ViewOf = Callable[[int], EntryMessage]
_NO_PROPERTIES: Final[Mapping[str, str]] = {}


class ResultEncoder:
    """Results to messages."""

    def __init__(self, output: str, encode: Callable[[object], bytes] | None, *, forward: bool) -> None:
        """`output`: topic of results, "" for none. `encode`: of the output's SerDe; None: by the type.
        `forward`: whether messages have the properties of their input."""
        self.output = output
        self.encode = encode or output_bytes
        self._forward = forward
        self._given = encode is not None
        self.unsent: Callable[[object], None] | None = None
        """Told each result that goes to no topic."""

    def emit(self, result: object, properties: Mapping[str, str], into: CallOutcome) -> None:
        """Adds the messages of a result; a list has several. Raises BadResultError."""
        if type(result) is list and not self._given:
            for each in result:
                if each is not None:
                    self._emit_one(each, properties, into)
        else:
            self._emit_one(result, properties, into)

    def _emit_one(self, value: object, properties: Mapping[str, str], into: CallOutcome) -> None:
        forwarded = properties if self._forward else _NO_PROPERTIES
        if isinstance(value, OutputRecord):
            topic = value.topic or self.output
            payload = self._encoded(value.value)
            merged = {**forwarded, **value.properties} if forwarded else value.properties
            output = OutputMessage(payload, value.key, merged, value.event_time_ms)
            if topic:
                into.add(topic, output)
            return
        payload = self._encoded(value)
        if self.output:
            into.add(self.output, OutputMessage(payload, None, forwarded) if forwarded else payload)
        elif self.unsent is not None:
            self.unsent(value)

    def _encoded(self, value: object) -> bytes:
        payload = self.encode(value)
        if type(payload) is not bytes:
            raise BadResultError(f"the output SerDe made {type(payload).__name__} of a result, not bytes")
        return payload


class CallParts(NamedTuple):
    """What a call needs."""

    loaded: LoadedFunction
    context: FunctionContext
    effects: CallEffects
    encoder: ResultEncoder
    state: PendingState | None
    now_s: Callable[[], float]
    """Seconds of a clock that never goes back."""


class FunctionCaller:
    """Calls a plain function, or a method of a class."""

    def __init__(self, parts: CallParts, *, stops_at_failure: bool) -> None:
        """`stops_at_failure`: whether a message that fails holds up those behind it."""
        self._loaded, self._context, self._effects, self._encoder, self._state, self._now_s = parts
        self.stops_at_failure = stops_at_failure

    def rows(
        self,
        entry: TakenEntry,
        view: EntryMessage,
        decode: Decoder,
        rows: range,
        deadline_s: float,
        into: CallOutcome,
    ) -> int:
        """Calls for the messages `rows` of an entry until `deadline_s` of the clock, at least for one.

        Returns the row at which it stopped: the end of the range, the next one when the time was over, or
        that of the failure. A failure is added to `into`.
        """
        call = self._loaded.call
        context = self._context if self._loaded.wants_context else None
        if context is not None:
            context.current = view
        effects = self._effects
        plain = entry.plain
        payloads = entry.payloads
        output = self._encoder.output
        sent = into.outputs.setdefault(output, []).append if output and plain else None
        now = self._now_s
        for row in rows:
            payload = payloads[row]
            try:
                value = payload if decode is None else decode(payload)
                if context is None:
                    result = call(value)
                else:
                    view.move(row)
                    result = call(value, context)
                if result is not None:
                    if type(result) is bytes and sent is not None:
                        sent(result)
                    elif not plain:
                        self._with_properties(view, row, result, into)
                    else:
                        self._encoder.emit(result, _NO_PROPERTIES, into)
                elif not plain:
                    self._with_properties(view, row, None, into)
            except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's code may raise anything
                effects.clear()
                into.failures.append(failure(entry, row, error, view.topic))
                if self.stops_at_failure:
                    return row
                continue
            if context is not None and effects.has_any:
                settle(effects, self._state, into)
            into.processed += 1
            if now() > deadline_s:
                return row + 1
        return rows.stop

    def _with_properties(self, view: EntryMessage, row: int, result: object, into: CallOutcome) -> None:
        view.move(row)
        properties = view.properties()
        trigger = properties.pop(TRIGGER, None)
        if result is not None:
            self._encoder.emit(result, properties, into)
        if trigger is not None:
            shown = None if result is None or type(result) is list else result
            if isinstance(shown, OutputRecord):
                shown = shown.value
            into.triggered.append((trigger, None if shown is None else self._encoder.encode(shown)))

    def window(self, view: EntryMessage, values: list[object], into: CallOutcome) -> None:
        """Calls with the values of a window, of which `view` is the last. A failure is added to `into`."""
        effects = self._effects
        self._context.current = view
        try:
            wants = self._loaded.wants_context
            result = self._loaded.call(values, self._context) if wants else self._loaded.call(values)
            if result is not None:
                self._encoder.emit(result, _NO_PROPERTIES, into)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's code may raise anything
            effects.clear()
            into.failures.append(failure(view.entry, view.row, error, view.topic))
            return
        if effects.has_any:
            settle(effects, self._state, into)

    def conclude(self, view: EntryMessage, result: object, effects: CallEffects, into: CallOutcome) -> None:
        """As after a call of `rows` that ended well, with its result. Raises BadResultError."""
        if not view.entry.plain:
            self._with_properties(view, view.row, result, into)
        elif result is not None:
            self._encoder.emit(result, _NO_PROPERTIES, into)
        if effects.has_any:
            settle(effects, self._state, into)
        into.processed += 1


class BatchCaller:
    """Calls a function that takes a list of messages. When it raises, the list is halved until the message is
    alone that fails; so messages may be given to it again."""

    def __init__(self, parts: CallParts, *, halves: bool) -> None:
        """`halves`: whether a list that fails is halved; where order counts, nothing of it is done then."""
        self._halves = halves
        self._loaded, self._context, self._effects, self._encoder, self._state, _ = parts

    def messages(self, values: Sequence[object], view_of: ViewOf, plain: bool, into: CallOutcome) -> None:
        """Calls with all values. `view_of` finds the message of a value by its place; `plain`: none has
        properties."""
        if not values:
            return
        effects = self._effects
        made: list[Output] = []
        kept = CallOutcome()
        wants = self._loaded.wants_context
        if wants:
            self._context.current = view_of(0)
        try:
            results = self._loaded.call(values, self._context) if wants else self._loaded.call(values)
            if results is not None:
                self._emit_all(self._checked(results, len(values)), view_of, plain, made, kept)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's code may raise anything
            effects.clear()
            if len(values) == 1 or not self._halves:
                view = view_of(0)
                into.failures.append(failure(view.entry, view.row, error, view.topic))
            else:
                middle = len(values) // 2
                self.messages(values[:middle], view_of, plain, into)
                self.messages(values[middle:], lambda place: view_of(middle + place), plain, into)
            return
        if made:
            into.outputs.setdefault(self._encoder.output, []).extend(made)
        for topic, outputs in kept.outputs.items():
            into.outputs.setdefault(topic, []).extend(outputs)
        if effects.has_any:
            settle(effects, self._state, into)
        into.processed += len(values)

    def _checked(self, results: object, count: int) -> Sequence[object]:
        if isinstance(results, list | tuple) and len(results) == count:
            return results
        shown = f"{len(results)} results" if isinstance(results, list | tuple) else type(results).__name__
        raise BadResultError(
            f"a batch function got {count} messages and returned {shown}: it returns None, or a list with one"
            " result, or None, for each message"
        )

    def _emit_all(
        self,
        results: Sequence[object],
        view_of: ViewOf,
        plain: bool,
        made: list[Output],
        kept: CallOutcome,  # a fact of the values
    ) -> None:
        """Plain bytes go to `made`, all others to `kept`. Both keep their order, not that between them."""
        if plain and self._encoder.output and all(type(result) is bytes for result in results):
            made.extend(results)  # type: ignore[arg-type]  # just looked at
            return
        for place, result in enumerate(results):
            if result is not None:
                properties = _NO_PROPERTIES if plain else view_of(place).properties()
                self._encoder.emit(result, properties, kept)


def settle(effects: CallEffects, state: PendingState | None, into: CallOutcome) -> None:
    """A call has ended well: its effects count."""
    into.publish(effects)
    if effects.changes:
        assert state is not None, "the context refuses changes without a state"
        state.take(effects.changes, into.changes)
    effects.clear()


def failure(entry: TakenEntry, row: int, error: BaseException, topic: str) -> FailedMessage:
    """What is remembered of a call that raised an exception."""
    place = f"message {entry.position}" + (f":{row}" if entry.said is not None else "") + f" of {topic}"
    said, trace = described(error), user_trace(error)
    if said not in trace:
        trace = f"{trace}\n{said}"
    return FailedMessage(entry, row, 1, said, f"{place}\n{trace}")
