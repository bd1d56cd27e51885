"""Exact comparison of two computations of one table, row by row and value by value."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

KEY = ["hour_ms", "carrier"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two tables of one computation differ."""

    left: str
    right: str
    left_rows: int
    right_rows: int
    differing: pd.DataFrame
    """Rows that only one side has, with a column `only_in` that names it; a changed value gives one row
    of each side.
    """

    @property
    def agree(self) -> bool:
        """Same rows, same values, same number of times."""
        return len(self.differing) == 0


def normalised(table: pd.DataFrame) -> pd.DataFrame:
    """The table with nullable whole numbers, in the order of the key; raises `ValueError` on a fraction."""
    typed = {}
    for name in table.columns:
        typed[name] = table[name].astype("object").astype("str") if name == "carrier" else _whole(table[name])
    return pd.DataFrame(typed).sort_values(KEY, kind="stable").reset_index(drop=True)


def compare(left_name: str, left: pd.DataFrame, right_name: str, right: pd.DataFrame) -> Comparison:
    """Compare two tables with the same columns, in any order of rows; a row twice on one side is a
    difference.
    """
    if set(left.columns) != set(right.columns):
        raise ValueError(f"columns differ: {sorted(set(left.columns) ^ set(right.columns))}")
    columns = list(right.columns)
    sides = [normalised(table[columns]) for table in (left, right)]
    for side in sides:
        # Numbers repeated rows, so that a row that exists twice must exist twice on the other side.
        side["_copy"] = side.groupby(columns, dropna=False, sort=False).cumcount()
    merged = sides[0].merge(sides[1], how="outer", on=[*columns, "_copy"], indicator="only_in")
    differing = merged[merged["only_in"] != "both"].drop(columns="_copy")
    names = {"left_only": left_name, "right_only": right_name}
    differing = differing.assign(only_in=differing["only_in"].astype("object").map(names))
    differing = differing.sort_values([*KEY, "only_in"], kind="stable").reset_index(drop=True)
    return Comparison(left_name, right_name, len(left), len(right), differing)


def _whole(values: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(values)
    if pd.api.types.is_float_dtype(numbers.dtype) and not (numbers.dropna() % 1 == 0).all():
        raise ValueError(f"column {values.name} has fractions")
    return numbers.astype("Int64")
