"""Whose rights a function's code has (pure).

- A role that uploads code is the only owner: the code has its rights.
- A role that changes the configuration alone limits the code to what this role may do too. So a superuser
  that corrects a function gives its code no more rights, and a colleague borrows none.
- A function without an owner gets the first role that updates it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from magnetar.auth.identity import Identity
from magnetar.functions.refusals import TooManyOwnersError

SPEAKERS_MAX: Final = 16
"""Most roles of which each must have a right: each action of the code asks for all of them."""


def owner_after(owner: Identity | None, caller: Identity | None, *, uploads: bool) -> Identity | None:
    """The owner after an update by `caller`; None: without authentication. `uploads`: whether the caller
    brings code. Raises TooManyOwnersError."""
    if caller is None:
        return None if uploads else owner
    if uploads or owner is None:
        return caller
    more = tuple(each for each in caller.speakers if each not in owner.speakers)
    if len(owner.speakers) + len(more) > SPEAKERS_MAX:
        raise TooManyOwnersError(
            f"more than {SPEAKERS_MAX} roles have changed the function's configuration",
            remedy="update it with its code: it has the rights of your role alone then",
        )
    return replace(owner, along=(*owner.along, *more)) if more else owner


def document_of_owner(owner: Identity) -> dict[str, object]:
    """For the store: roles alone, never a credential."""
    return {
        "role": owner.role,
        "also": list(owner.also),
        "via": owner.via,
        "along": [list(each) for each in owner.along],
    }


def owner_of(document: object) -> Identity | None:
    """The inverse of `document_of_owner`, None of None. Raises KeyError, TypeError, ValueError for what is
    damaged: it must not become an owner with other rights."""
    if document is None:
        return None
    if not isinstance(document, dict):
        raise TypeError("the owner is not an object")
    role, *also = _roles([document["role"], *document["also"]])
    via, along = document["via"], document["along"]
    if not isinstance(via, str) or not isinstance(along, list):
        raise TypeError("the owner's roles are not texts")
    return Identity(role, also=tuple(also), via=via, along=tuple(_roles(each) for each in along))


def _roles(found: object) -> tuple[str, ...]:
    roles = tuple(each for each in found if isinstance(each, str) and each) if isinstance(found, list) else ()
    if not roles or not isinstance(found, list) or len(roles) != len(found):
        raise ValueError("the owner's roles are not texts")
    return roles
