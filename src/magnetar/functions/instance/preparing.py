"""A function with all that its calls need: code, context, decoders, encoder.

It outlives the connections.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar.functions.errors import CodeError
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.call_effects import CallEffects, EntryMessage
from magnetar.functions.instance.calling import (
    BatchCaller,
    CallParts,
    Decoder,
    FunctionCaller,
    ResultEncoder,
)
from magnetar.functions.instance.instance_clock import SYSTEM, InstanceClock
from magnetar.functions.instance.loading import LoadedFunction, load
from magnetar.functions.instance.plan import InputPlan, InstancePlan
from magnetar.functions.instance.unpacking import import_paths
from magnetar.functions.sdk import official_names
from magnetar.functions.sdk.context import FunctionContext
from magnetar.functions.sdk.message_id import InputMessageId
from magnetar.functions.sdk.serde import IdentitySerDe, PickleSerDe, SerDe, decoder_of, guessed
from magnetar.functions.state.pending_state import PendingState

_BY_SCHEMA: Final = {"string": "str", "json": "dict", "bytes": "bytes"}
"""Schema types, and the annotation that means the same."""
_OURS: Final = {"IdentitySerDe": IdentitySerDe, "PickleSerDe": PickleSerDe}


class InstanceFacilities:
    """What a function may ask of its instance."""

    def __init__(self, *, has_state: bool) -> None:
        self._has_state = has_state
        self.find_serde: Callable[[str], SerDe]
        self.topics: list[str] = []
        self.acknowledged: Callable[[InputMessageId, str], None]
        """Set by what owns the connections."""

    @property
    def has_state(self) -> bool:
        """Whether the function has a state."""
        return self._has_state

    def input_topics(self) -> list[str]:
        """Names of the topics that are read."""
        return list(self.topics)

    def serde(self, class_name: str) -> SerDe:
        """A SerDe by its class's name. Raises CodeError."""
        return self.find_serde(class_name)

    def acknowledge(self, message_id: InputMessageId, topic: str) -> None:
        """The function acknowledges a message."""
        self.acknowledged(message_id, topic)


class PreparedFunction:
    """A function that can be called."""

    def __init__(self, plan: InstancePlan, state: PendingState | None, clock: InstanceClock = SYSTEM) -> None:
        """Imports the user's code. Raises CodeError."""
        self.plan = plan
        self.clock = clock
        self.state = state
        official_names.provide()
        package = Path(plan.package)
        folder = Path(plan.code_folder) / "package"
        self.loaded: LoadedFunction = load(plan.class_name, package, import_paths(package, folder))
        self.facilities = InstanceFacilities(has_state=state is not None)
        self.facilities.find_serde = self._serde
        self.effects = CallEffects(state, clock.now_ms)
        self.context = FunctionContext(plan, self.facilities, self.effects)
        encode = self._serde(plan.output_serde).serialize if _is_named(plan.output_serde) else None
        self.encoder = ResultEncoder(plan.output, encode, forward=plan.forward_properties)
        self.decoders: dict[str, Decoder] = {each.topic: self._decoder(each) for each in plan.inputs}
        """By topic or pattern, as the plan names them."""
        self.caller = FunctionCaller(
            CallParts(self.loaded, self.context, self.effects, self.encoder, state, clock.now_s),
            stops_at_failure=plan.in_order,
        )
        self.batch_caller = BatchCaller(
            CallParts(self.loaded, self.context, self.effects, self.encoder, state, clock.now_s),
            halves=not plan.in_order,
        )

    def view(self, entry: TakenEntry, row: int, topic: str, part: int) -> EntryMessage:
        """A message as the context shows it."""
        return EntryMessage(entry, row, topic, part)

    def _decoder(self, given: InputPlan) -> Decoder:
        if _is_named(given.serde):
            return self._serde(given.serde).deserialize
        annotation = self.loaded.annotation
        if given.schema_type and given.schema_type.lower() not in ("none", "auto_consume"):
            annotation = _BY_SCHEMA.get(given.schema_type.lower())
            if annotation is None:
                raise CodeError(
                    f"the schema {given.schema_type!r} of {given.topic} cannot be decoded for functions here:"
                    " string, json and bytes can; take bytes and decode them in the function"
                )
        found = decoder_of(annotation)
        if found is bytes:
            return None
        return found or guessed

    def _serde(self, class_name: str) -> SerDe:
        """An object of the class: of ours, or of the user's code. Raises CodeError."""
        module_name, _, name = class_name.rpartition(".")
        found: object = _OURS.get(name) if module_name in ("", "serde", "pulsar") else None
        if found is None:
            module = self.loaded.module
            if module_name and module_name != module.__name__:
                try:
                    module = importlib.import_module(module_name)
                except ImportError as error:
                    raise CodeError(f"the SerDe {class_name} cannot be imported: {error}") from error
            found = getattr(module, name, None)
        if not callable(found):
            raise CodeError(f"there is no SerDe class {class_name}")
        made = found()
        if not (hasattr(made, "serialize") and hasattr(made, "deserialize")):
            raise CodeError(f"{class_name} has no methods serialize and deserialize")
        return made  # type: ignore[no-any-return]  # the user's class, just looked at


def _is_named(serde: str) -> bool:
    return serde not in ("", "serde.IdentitySerDe", "IdentitySerDe", "pulsar.IdentitySerDe")
