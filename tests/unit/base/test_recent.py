"""A cache whose keys strangers choose stays small."""

from __future__ import annotations

from magnetar.base.recent import Recent


def test_the_newest_stay() -> None:
    recent: Recent[int, str] = Recent(10)
    for key in range(1000):
        recent.put(key, str(key))
        assert len(recent) <= 10
        assert all(recent.get(i) == str(i) for i in range(max(0, key - 4), key + 1))
    assert recent.get(0) is None


def test_a_key_is_kept_once() -> None:
    recent: Recent[str, int | None] = Recent(2)
    recent.put("a", 1)
    recent.put("a", None)
    assert (len(recent), "a" in recent, recent["a"]) == (1, True, None)
    recent.forget("a")
    recent.forget("a")
    assert len(recent) == 0
