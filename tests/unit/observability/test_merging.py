"""The metrics of several processes as one scrape."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.base.errors import StorageError
from magnetar.observability.merging import as_answer, from_answer, merged
from magnetar.observability.metrics import Exposition, FamilyText, Registry, labels


def families_of(process: str, value: int) -> list[FamilyText]:
    out = Exposition(process=process)
    out.counter("messages_total", "Messages.", value, labels(("topic", 't"1')))
    out.gauge("up", "Whether it is there.", value)
    out.histogram("waits_seconds", "Waits.", (0.5,), (value, 0), 1.0, labels(("topic", "t")))
    return list(out.families())


def test_a_family_of_several_processes_stands_once_with_all_samples() -> None:
    text = merged([families_of("1", 3), families_of("storage", 4)])
    assert text.count("# TYPE messages_total counter") == 1
    found = {
        (sample.name, sample.labels["process"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["messages_total", "1"] == 3
    assert found["messages_total", "storage"] == 4
    assert found["up", "1"] == 3
    assert found["waits_seconds_count", "storage"] == 4
    assert 'messages_total{process="1",topic="t\\"1"} 3\n' in text


def test_a_registry_labels_what_it_says_of_itself_too() -> None:
    registry = Registry()
    registry.gauge("own", "One of its own.").value = 2.0
    found = [family for family in registry.families("2") if family is not None]
    assert found[0].name == "own"
    assert all('process="2"' in family.samples for family in found)
    assert "process" not in "".join(registry.scrape())


def test_families_travel_as_json() -> None:
    families = families_of("1", 1)
    assert from_answer(json.loads(json.dumps(as_answer(families)))) == families


@pytest.mark.parametrize("answer", [None, {}, [1], [["a", "b"]], [["a", "b", 1]]])
def test_what_is_no_metrics_is_refused(answer: object) -> None:
    with pytest.raises(StorageError, match="no metrics"):
        from_answer(answer)
