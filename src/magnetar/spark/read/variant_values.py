"""Values as Spark's VARIANT: from JSON, or from the values of another format."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import VariantType
from pyspark.sql.variant_utils import VariantUtils

from magnetar.arrow import arrays
from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.arrow.values import Column, Values
from magnetar.client.errors import PayloadError

VARIANT: Final = to_arrow_type(VariantType())


class VariantValues:
    """Converts each value separately, as variants have no columns."""

    type = VARIANT

    def __init__(self, inside: Values | None) -> None:
        """`inside` decodes values that are not JSON."""
        self._inside = inside
        self.columns = frozenset() if inside is None else inside.columns

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """As the contract of `Values` says. Raises PayloadError for a value that is not JSON."""
        texts: list[Any]
        if self._inside is None:
            texts = arrays.slices(data, starts, ends).to_pylist()
        else:
            values = self._inside.decode(data, starts, ends, present, column).to_pylist()
            texts = [json.dumps(value, default=str) for value in values]
        found = []
        for text, there in zip(texts, present.tolist(), strict=True):
            try:
                built = VariantUtils.parse_json(text) if there else None
            except ValueError as error:
                shown = bytes(text)[:80].decode("utf-8", "replace") if isinstance(text, bytes) else text[:80]
                raise PayloadError(f"a value is not JSON, so it cannot be a variant: {shown!r}") from error
            found.append(None if built is None else {"value": built[0], "metadata": built[1]})
        return pa.array(found, VARIANT)
