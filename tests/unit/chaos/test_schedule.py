"""A seed is the whole schedule; what is written is read again."""

from __future__ import annotations

import pytest
from chaos.schedule import KINDS, MIXES, QUIET_S, STORIES, Fault, Shape, draw, read, story, written

SHAPE = Shape()
THREE = Shape(metadata=("m1", "m2", "m3"))


def many(mix: str = "all", shape: Shape = SHAPE) -> list[list[Fault]]:
    return [draw(seed, mix, 300, shape) for seed in range(100)]


def test_a_seed_is_the_schedule() -> None:
    assert draw(7, "all", 300, SHAPE) == draw(7, "all", 300, SHAPE)
    assert draw(7, "all", 300, SHAPE) != draw(8, "all", 300, SHAPE)


def test_what_is_written_is_read_again() -> None:
    for faults in many():
        assert read(written(faults)) == faults


def test_every_kind_of_a_mix_is_drawn() -> None:
    for mix, kinds in MIXES.items():
        assert {fault.kind for faults in many(mix) for fault in faults} == set(kinds)


def test_faults_are_within_the_run_and_name_members() -> None:
    for faults in many():
        assert len(faults) > 10
        for fault in faults:
            assert fault.at_s >= QUIET_S
            assert fault.end_s <= 300.01
            assert set(fault.targets) <= set(SHAPE.all)
            assert len(fault.targets) == len(set(fault.targets)) == (2 if KINDS[fault.kind].other else 1)


@pytest.mark.parametrize("shape", [SHAPE, THREE])
def test_a_member_has_one_fault_at_a_time_and_most_bookies_none(shape: Shape) -> None:
    for faults in many(shape=shape):
        for fault in faults:
            meanwhile = [each for each in faults if each.at_s <= fault.at_s < each.end_s]
            taken = [name for each in meanwhile for name in each.targets]
            assert len(taken) == len(set(taken))
            assert 2 * len(set(taken) & set(shape.bookies)) <= len(shape.bookies)


def test_one_way_cuts_go_both_ways() -> None:
    cuts = [fault.targets for faults in many() for fault in faults if fault.kind == "one way"]
    assert any(first in SHAPE.clients for first, _ in cuts)
    assert any(second in SHAPE.clients for _, second in cuts)


def test_stories_need_no_chance() -> None:
    told = {name: story(name, 120, SHAPE) for name in STORIES}
    assert [fault.targets for fault in told["rolling"]] == [("b1",), ("b2",), ("b3",)] * 2
    assert [fault.targets for fault in told["outage"]] == [("m1",)]
    assert {fault.kind for fault in told["full"]} == {"full disk"}
    for faults in told.values():
        assert read(written(faults)) == faults
        assert all(fault.end_s <= 120 for fault in faults)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1 of the schedule is not a fault"),
        ('{"at_s": 1, "kind": "kill", "targets": ["b1"]}', "is not a fault"),
        (
            '{"at_s": 1, "kind": "tickle", "targets": ["b1"], "for_s": 1}',
            "no kind 'tickle'; there are: kill,",
        ),
    ],
)
def test_a_bad_line_is_named(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(line)
