"""The verdict over what the alert consumers saw."""

from __future__ import annotations

from types import SimpleNamespace

from magnetar.demo.alerts import SeenAlert, judge


def alert(flight_id: int, seq: int, route: str = "EWR-LAX", place: float | None = 33.9) -> SimpleNamespace:
    origin, dest = route.split("-")
    return SimpleNamespace(
        flight_id=flight_id,
        origin=origin,
        dest=dest,
        route_seq=seq,
        dest_lat=place,
        dest_lon=place,
        delay_min=100 + flight_id,
    )


def seen(name: str, *alerts: SimpleNamespace) -> SeenAlert:
    one = SeenAlert(name)
    for each in alerts:
        one.note(f"{each.origin}-{each.dest}", each)
    return one


def test_all_once_in_order_is_well() -> None:
    a = seen("a", alert(1, 1), alert(2, 5))
    b = seen("b", alert(3, 2, "JFK-BOS"))
    verdict = judge([a, b], {1, 2, 3})
    assert verdict.ok
    assert verdict.per_consumer == {"a": 2, "b": 1}
    assert a.places == {"LAX": (33.9, 33.9, 2, 203)}


def test_a_step_back_is_disorder() -> None:
    verdict = judge([seen("a", alert(2, 5), alert(1, 1))], {1, 2})
    assert verdict.disordered == [("EWR-LAX", 5, 1)]
    assert not verdict.ok


def test_a_route_at_two_consumers_is_noticed() -> None:
    verdict = judge([seen("a", alert(1, 1)), seen("b", alert(2, 2))], {1, 2})
    assert verdict.shared_routes == {"EWR-LAX"}
    assert not verdict.ok


def test_missing_unexpected_and_repeated_are_told_apart() -> None:
    verdict = judge([seen("a", alert(1, 1), alert(1, 2), alert(9, 3))], {1, 2})
    assert (verdict.missing, verdict.unexpected, verdict.repeated) == ({2}, {9}, 1)
    assert not verdict.ok


def test_unknown_places_are_left_out() -> None:
    assert seen("a", alert(1, 1, place=None)).places == {}


def test_a_wrong_key_is_noticed() -> None:
    one = SeenAlert("a")
    one.note("JFK-BOS", alert(1, 1))
    assert not judge([one], {1}).ok
