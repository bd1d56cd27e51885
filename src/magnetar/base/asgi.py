"""What an HTTP server calls: an application of ASGI.

Source: https://asgi.readthedocs.io/en/latest/specs/main.html. The values of scopes and events have the types
that this specification gives for their keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
"""A connection: its type, its path and headers, and the address of the client."""
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
"""Waits for the next event from the client, such as a part of a body."""
Send = Callable[[Event], Awaitable[None]]
"""Sends an event to the client, such as the start of an answer."""
