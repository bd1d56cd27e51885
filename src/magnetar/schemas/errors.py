"""Errors of schemas."""

from __future__ import annotations

from magnetar.base.errors import BrokerError


class SchemaError(BrokerError):
    """Base class of the errors of this room."""


class InvalidSchemaError(SchemaError):
    """The definition is not valid for its type; the message names the place."""


class IncompatibleSchemaError(SchemaError):
    """The topic's strategy does not allow the schema; the message names the field and the rule."""
