"""Every parser bears bytes of chance, and the inputs that broke one once. `./dev fuzz` does so at length."""

from __future__ import annotations

import warnings

import pytest
from fuzzing.catalogue import CORPUS, HARNESSES, inputs_of
from fuzzing.execution import run
from fuzzing.harness import BrokenRuleError, Harness, require
from fuzzing.mutation import Mutator

EXECUTIONS = 400
"""Executions of each harness in a run; all of them take seconds."""


@pytest.mark.parametrize("name", HARNESSES)
def test_a_parser_refuses_or_gives_what_its_harness_allows(name: str) -> None:
    harness = HARNESSES[name]
    inputs = inputs_of(harness)
    outcome = run(harness, inputs, seed=7, count_max=len(inputs) + EXECUTIONS, seconds=60)
    assert [(data, reason) for data, reason in outcome.findings] == []
    assert outcome.executions >= len(inputs)


def test_every_folder_of_the_corpus_belongs_to_a_harness() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= HARNESSES.keys()


def test_what_a_harness_forbids_is_found() -> None:
    def picky(data: bytes) -> object:
        if data.startswith(b"\xff"):
            raise ValueError("refused")
        require(b"\xff" not in data, "the byte of doom")
        return len(data)

    harness = Harness(name="picky", run=picky, refusals=(ValueError,), seeds=lambda: [b"abc"])
    outcome = run(harness, [b"abc"], seed=1, count_max=5_000, seconds=60)
    assert outcome.findings
    assert all(reason == f"{BrokenRuleError.__name__}: the byte of doom" for _, reason in outcome.findings)
    assert outcome.refused


def test_inputs_are_the_same_for_the_same_seed() -> None:
    def some(seed: int) -> list[bytes]:
        mutator = Mutator([b"seed", b"other"], [b"word"], 64, seed)
        return [mutator.next() for _ in range(50)]

    assert some(3) == some(3) != some(4)
    assert all(len(data) <= 64 for data in some(3))


def test_an_expression_of_a_client_says_nothing_in_our_log() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run(HARNESSES["expressions"], [b"1in (2,)"], seed=1, count_max=1, seconds=60)
    assert not said
