"""What is wrong with a schema."""

from __future__ import annotations

from magnetar.base.errors import BrokerError


class SchemaError(BrokerError):
    """Base of the refusals of this room."""


class InvalidSchemaError(SchemaError):
    """A definition that is none of its type; the message says where."""


class IncompatibleSchemaError(SchemaError):
    """A schema that the topic's strategy does not allow; the message names the field and the rule."""
