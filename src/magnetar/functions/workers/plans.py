"""A stored function to the plans of its instances (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.functions.config.function_config import EARLIEST, ConsumerConfig, WindowConfig
from magnetar.functions.instance.plan import InputPlan, InstancePlan, WindowPlan
from magnetar.functions.ports import StoredFunction

QUEUE_MESSAGES: Final = 10_000
"""Messages that the broker sends ahead unless the configuration says otherwise: Pulsar's 1000 are one batch
here."""

CODE_FOLDER: Final = "code"
"""Folder of unpacked code below that of functions; each process has one of its own while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Where workers reach the broker and keep their files."""

    service_url: str
    admin_url: str
    confines: bool = True
    """Whether code is kept from files of the machine where the system can."""
    must_confine: bool = False
    """Whether code does not run where it cannot."""
    starts_processes: bool = False
    """Whether confined code may start processes."""
    connect_ports: tuple[int, ...] = ()
    """Ports to which confined code may connect, besides the broker's; empty: all."""
    folder: Path
    """State and unpacked code of functions."""


def plan_of(function: StoredFunction, instance: int, place: WorkerPlace, token: str = "") -> InstancePlan:
    """The plan of one instance. `token`: what its process shows to the broker."""
    config = function.config
    return InstancePlan(
        tenant=function.tenant,
        namespace=function.namespace,
        name=function.name,
        instance=instance,
        parallelism=config.parallelism,
        version=function.version,
        class_name=config.class_name,
        package=str(function.package or ""),
        inputs=tuple(_input(topic, each) for topic, each in config.inputs.items()),
        output=config.output,
        output_serde=config.output_serde,
        guarantee=config.processing_guarantees,
        ordered=config.retain_ordering,
        by_key=config.retain_key_ordering,
        auto_ack=config.auto_ack or config.window is not None,
        subscription=config.subscription,
        subscription_type=config.subscription_type,
        earliest=config.subscription_position == EARLIEST,
        retries_max=_retries(config.max_message_retries),
        dead_letter_topic=config.dead_letter_topic,
        log_topic=config.log_topic,
        forward_properties=config.forward_source_message_property,
        window=_window(config.window),
        user_config=config.user_config,
        secrets={name: str(value) for name, value in config.secrets.items()},
        service_url=place.service_url,
        admin_url=place.admin_url,
        token=token,
        state_file=str(state_path(function, place.folder)),
        work_folder=str(place.folder / CODE_FOLDER),
        confines=place.confines,
        must_confine=place.must_confine,
        starts_processes=place.starts_processes,
        connect_ports=place.connect_ports,
        memory_bytes_max=config.resources.ram,
        file_bytes_max=config.resources.disk,
    )


def state_path(function: StoredFunction, folder: Path) -> Path:
    """Where a function's state is: in a folder of its own, which is all that its code may write."""
    own = f"{function.name}.state"
    return folder / "states" / function.tenant / function.namespace / own / "state.sqlite"


def old_state_path(function: StoredFunction, folder: Path) -> Path:
    """Where earlier versions kept it, together with those of its namespace."""
    return folder / "state" / function.tenant / function.namespace / f"{function.name}.sqlite"


def _retries(given: int | None) -> int | None:
    return None if given is None or given < 0 else given


def _input(topic: str, given: ConsumerConfig) -> InputPlan:
    return InputPlan(
        topic=topic,
        is_pattern=given.is_regex,
        serde=given.serde,
        schema_type=given.schema_type,
        queue_messages=given.receiver_queue_size or QUEUE_MESSAGES,
    )


def _window(given: WindowConfig | None) -> WindowPlan | None:
    if given is None:
        return None
    return WindowPlan(
        length_count=given.length_count or 0,
        length_ms=given.length_ms or 0,
        slide_count=given.sliding_count or 0,
        slide_ms=given.sliding_ms or 0,
    )
