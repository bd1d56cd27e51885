"""A function's code has never more rights than the role that uploaded it."""

from __future__ import annotations

import pytest

from magnetar.auth.identity import Identity
from magnetar.functions.catalogue.owners import SPEAKERS_MAX, document_of_owner, owner_after, owner_of
from magnetar.functions.refusals import TooManyOwnersError

ADA = Identity("ada", also=("team",))
ROOT = Identity("root", via="proxy")


def test_who_uploads_code_owns_it_alone() -> None:
    assert owner_after(ADA, ROOT, uploads=True) == ROOT
    assert owner_after(None, ADA, uploads=True) == ADA
    assert owner_after(ADA, None, uploads=True) is None


def test_who_changes_the_configuration_limits_its_rights() -> None:
    both = owner_after(ADA, ROOT, uploads=False)
    assert both is not None
    assert both.speakers == (("ada", "team"), ("root",), ("proxy",))
    assert owner_after(both, ROOT, uploads=False) == both
    assert owner_after(both, ADA, uploads=False) == both
    assert owner_after(ADA, None, uploads=False) == ADA
    assert owner_after(None, ADA, uploads=False) == ADA


def test_each_right_is_asked_of_a_few_roles_at_most() -> None:
    owner: Identity | None = ADA
    for number in range(SPEAKERS_MAX - 1):
        owner = owner_after(owner, Identity(f"role-{number}"), uploads=False)
    with pytest.raises(TooManyOwnersError, match="16 roles"):
        owner_after(owner, ROOT, uploads=False)
    assert owner_after(owner, ROOT, uploads=True) == ROOT


def test_it_is_kept() -> None:
    for owner in (ADA, ROOT, owner_after(ADA, ROOT, uploads=False)):
        assert owner is not None
        assert owner_of(document_of_owner(owner)) == owner
    assert owner_of(None) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"role": ""},
        {"role": 7},
        {"also": ["x", ""]},
        {"via": 7},
        {"along": [[]]},
        {"along": "x"},
        {"along": [["x", 1]]},
    ],
)
def test_a_damaged_one_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        owner_of({**document_of_owner(ADA), **changed})
