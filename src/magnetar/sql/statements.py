"""A statement as the engine parses it: which topics it reads, what it may not do, what it can want. Pure.

The engine's own parser gives a tree of plain values. This module walks the tree. It replaces each table by
the name of one that the engine will have, and refuses everything that could reach beyond topics: the check
is a list of what is allowed, so that what later versions of the engine add is refused.

Source: DuckDB's `json_serialize_sql`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.names import TopicName
from magnetar.sql.bounds import BOUNDED, Condition
from magnetar.sql.engine_tree import Node
from magnetar.sql.errors import StatementError, TooDeepError
from magnetar.sql.functions import COMPUTING
from magnetar.sql.table_names import topic_of

_TABLE_KINDS: Final = frozenset(
    ("BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "PIVOT", "SHOW_REF")
)
_TABLE_FUNCTIONS: Final = frozenset(("range", "generate_series", "unnest"))
"""Functions in FROM that only compute. Others read files, settings or memory."""
_COMPARISONS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ROW_BY_ROW: Final = frozenset(("REGULAR", "CROSS", "NATURAL"))
"""Joins that may be given fewer rows of a table when the WHERE clause refuses those rows anyway. In joins of
nearest or equally numbered rows, a missing row changes the partners of others."""
_CHANGING_FUNCTIONS: Final = frozenset(("random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval"))


@dataclass(frozen=True, slots=True)
class TopicRef:
    """One place of the statement that reads a topic."""

    name: str
    """The table's name in the rewritten statement."""
    topic: TopicName
    conditions: tuple[Condition, ...]
    as_of: Node | None = None
    """The engine's form of the time whose state it reads; None: now."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that reads topics, and nothing else."""

    document: Node
    """The engine's tree, with the names of `refs` in place of topics."""
    refs: tuple[TopicRef, ...]
    columns: frozenset[str] | None
    """Names that are used, in lower case; None: all columns may be."""


@dataclass(slots=True)
class _Found:
    prefix: str
    """The names of `refs` begin with it, and no name of a WITH clause does, which would hide a topic."""
    refs: list[TopicRef] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)
    """Names that stand without a table; that of a table stands for its whole row."""
    tables: set[str] = field(default_factory=set)
    has_star: bool = False


def read_statement(document: Node) -> Statement:
    """The statement of a tree, which is changed in place.

    Raises StatementError, UnknownTopicError.
    """
    try:
        return _read(document)
    except RecursionError as error:
        raise TooDeepError from error


def _read(document: Node) -> Statement:
    statements = document.get("statements", [])
    if len(statements) != 1:
        raise StatementError(f"one statement is expected, and there are {len(statements)}")
    named = tuple(_named_queries(statements[0]))
    prefix = "topic_"
    while any(name.startswith(prefix) for name in named):
        prefix = f"_{prefix}"
    found = _Found(prefix)
    _walk(statements[0], frozenset(), found)
    columns = None if found.has_star or found.alone & found.tables else frozenset(found.columns)
    return Statement(document, tuple(found.refs), columns)


def _named_queries(node: object) -> Iterator[str]:
    """The names of all WITH clauses of a statement, in lower case."""
    if isinstance(node, dict):
        for entry in (node.get("cte_map") or {}).get("map", ()):
            yield str(entry["key"]).lower()
        yield str(node.get("cte_name") or "").lower()
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for each in inside:
        yield from _named_queries(each)


def _walk(node: object, scope: frozenset[str], found: _Found) -> None:
    """`scope`: names, in lower case, that stand for parts of the statement and not for topics."""
    if isinstance(node, list):
        for each in node:
            _walk(each, scope, found)
    elif isinstance(node, dict):
        if "cte_map" in node:
            scope = _walk_named(node, scope, found)
        if "from_table" in node:
            conditions = _conditions_of(node)
            _walk_tables(node["from_table"], scope, found, conditions)
        if node.get("class"):
            _check_expression(node, found)
        for name, each in node.items():
            if name not in ("cte_map", "from_table"):
                if isinstance(each, dict) and _is_table(each):
                    _walk_tables(each, scope, found, {})
                else:
                    _walk(each, scope, found)


def _walk_named(node: Node, scope: frozenset[str], found: _Found) -> frozenset[str]:
    """Walks the named queries of a WITH clause; returns the scope behind them."""
    for entry in node["cte_map"].get("map", ()):
        name = str(entry["key"]).lower()
        query = entry["value"]
        is_recursive = "RECURSIVE_CTE_NODE" in (_kind_of_query(query), node.get("type"))
        _walk(query, scope | {name} if is_recursive else scope, found)
        scope |= {name}
    if node.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE") and node.get("cte_name"):
        scope |= {str(node["cte_name"]).lower()}
    return scope


def _kind_of_query(value: Node) -> str:
    return str((value.get("query_node") or {}).get("type", ""))


def _is_table(node: Node) -> bool:
    """Whether a node is what FROM can have. Expressions have a class, and whole queries no alias."""
    return "sample" in node and "alias" in node and "class" not in node


def _walk_tables(
    node: Node, scope: frozenset[str], found: _Found, conditions: Mapping[int, list[Condition]]
) -> None:
    kind = node.get("type")
    if kind not in _TABLE_KINDS:
        raise StatementError(f"queries cannot read {str(kind).lower()}: only topics, and other queries")
    if kind == "BASE_TABLE":
        _walk_base(node, scope, found, conditions)
        return
    if kind == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in _TABLE_FUNCTIONS:
            raise StatementError(
                f"queries cannot call {name}(): FROM takes topics, and {', '.join(sorted(_TABLE_FUNCTIONS))}"
            )
    if kind == "SHOW_REF" and not node.get("query"):
        raise StatementError("write SHOW TOPICS, or DESCRIBE with the name of a topic")
    if kind in ("PIVOT", "SHOW_REF") or node.get("ref_type") == "NATURAL" or node.get("column_name_alias"):
        # They use columns without naming them.
        found.has_star = True
    found.columns.update(str(name).lower() for name in node.get("using_columns") or ())
    found.tables.add(_name_of(node))
    for name, each in node.items():
        if isinstance(each, dict) and _is_table(each):
            _walk_tables(each, scope, found, conditions)
        elif name != "sample":
            _walk(each, scope, found)


def _walk_base(
    node: Node, scope: frozenset[str], found: _Found, conditions: Mapping[int, list[Condition]]
) -> None:
    catalog, schema, table = (
        str(node.get(name) or "") for name in ("catalog_name", "schema_name", "table_name")
    )
    as_of = _time_of(node, scope, found)
    if not catalog and not schema and table.lower() in scope:
        if as_of is not None:
            raise StatementError(f"{table} is a query, and only topics have states of other times")
        return
    topic = topic_of(catalog, schema, table)
    ref = TopicRef(f"{found.prefix}{len(found.refs)}", topic, tuple(conditions.get(id(node), ())), as_of)
    found.refs.append(ref)
    node["alias"] = node.get("alias") or table
    found.tables.add(_name_of(node))
    found.has_star |= bool(node.get("column_name_alias"))
    node["catalog_name"] = node["schema_name"] = ""
    node["table_name"] = ref.name
    node["qualified_name"] = {"path": [ref.name]}


def _time_of(node: Node, scope: frozenset[str], found: _Found) -> Node | None:
    """The time whose state a table reads, which is taken from its node; None: now."""
    clause, node["at_clause"] = node.get("at_clause"), None
    if not clause:
        return None
    time: Node = clause["expr"]
    if str(clause.get("unit")).upper() != "TIMESTAMP" or not _is_constant(time):
        raise StatementError("a state is that of a time, which depends on no row: FOR SYSTEM_TIME AS OF '…'")
    _walk(time, scope, found)
    return time


def _check_expression(node: Node, found: _Found) -> None:
    kind = node.get("class")
    if kind in ("STAR", "POSITIONAL_REFERENCE"):
        # `#1` is the first column, whatever its name is.
        found.has_star = True
    elif kind == "COLUMN_REF":
        # A name of a table stands for a struct of its row; and a field of a struct has its name last.
        names = [str(name).lower() for name in node.get("column_names", ())]
        found.columns.update(names)
        if len(names) == 1:
            found.alone.update(names)
    elif kind in ("FUNCTION", "WINDOW"):
        name = str(node.get("function_name", "")).lower()
        if name not in COMPUTING:
            raise StatementError(f"queries cannot call {name}()")


# ---------------------------------------------------------------- what a query can want


def _conditions_of(select: Node) -> dict[int, list[Condition]]:
    """The conditions of a SELECT on each of its tables, by the identity of the table's node."""
    tables = _joined(select["from_table"])
    where = select.get("where_clause")
    if tables is None or not where:
        return {}
    renamed = {str(each.get("alias") or "").lower() for each in select.get("select_list", ())}
    found: dict[int, list[Condition]] = {}
    for node in _conjuncts(where):
        for column, operator, operands in _comparisons(node):
            names = [str(name) for name in column.get("column_names", ())]
            if not names or names[-1].lower() not in BOUNDED or names[-1].lower() in renamed:
                continue
            if all(_is_constant(operand) for operand in operands):
                for table in _owners(tables, names):
                    condition = Condition(names[-1].lower(), operator, tuple(operands))
                    found.setdefault(id(table), []).append(condition)
    return found


def _joined(node: Node) -> list[Node] | None:
    """The tables that are joined row by row; None when a missing row of one can change more than itself."""
    kind = node.get("type")
    if node.get("sample"):
        return None
    if kind == "JOIN":
        if node.get("ref_type") not in _ROW_BY_ROW:
            return None
        left, right = _joined(node["left"]), _joined(node["right"])
        return None if left is None or right is None else [*left, *right]
    return [node]


def _owners(tables: list[Node], names: list[str]) -> Iterator[Node]:
    """The table of a column: the only one, or the one that the name names."""
    bases = [
        each for each in tables if each.get("type") == "BASE_TABLE" and not each.get("column_name_alias")
    ]
    if len(names) == 1:
        if len(tables) == 1:
            yield from bases
        return
    if len(names) > 2:
        # A field of a value, as in `orders.value.key`.
        return
    wanted = names[-2].lower()
    named = [each for each in tables if _name_of(each) == wanted]
    if len(named) == 1 and named[0] in bases:
        yield named[0]


def _name_of(table: Node) -> str:
    return str(table.get("alias") or table.get("table_name") or "").lower()


def _conjuncts(node: Node) -> Iterator[Node]:
    if node.get("class") == "CONJUNCTION" and node.get("type") == "CONJUNCTION_AND":
        for child in node.get("children", ()):
            yield from _conjuncts(child)
    else:
        yield node


def _comparisons(node: Node) -> Iterator[tuple[Node, str, list[Node]]]:
    """The comparisons that a condition makes, with the column on the left."""
    kind, type_ = node.get("class"), node.get("type")
    if kind == "COMPARISON" and type_ in _COMPARISONS:
        operator = _COMPARISONS[type_]
        left, right = node["left"], node["right"]
        if left.get("class") == "COLUMN_REF":
            yield left, operator, [right]
        elif right.get("class") == "COLUMN_REF":
            yield right, _MIRRORED[operator], [left]
    elif kind == "BETWEEN" and node["input"].get("class") == "COLUMN_REF":
        yield node["input"], ">=", [node["lower"]]
        yield node["input"], "<=", [node["upper"]]
    elif kind == "OPERATOR" and type_ == "COMPARE_IN":
        first, *values = node.get("children", ())
        if first.get("class") == "COLUMN_REF" and values:
            yield first, "in", values


def _is_constant(node: object) -> bool:
    """Whether an expression has one value for the whole statement."""
    if isinstance(node, list):
        return all(map(_is_constant, node))
    if not isinstance(node, dict):
        return True
    if node.get("class") in ("COLUMN_REF", "SUBQUERY", "PARAMETER", "STAR", "WINDOW", "LAMBDA", "LAMBDA_REF"):
        return False
    if node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in _CHANGING_FUNCTIONS:
        return False
    return all(map(_is_constant, node.values()))
