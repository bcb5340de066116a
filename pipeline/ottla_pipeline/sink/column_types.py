"""Which columns the sink takes. Pure, without pyarrow.

Names and types are those of Spark's own Kafka sink, and a column `timestamp`, which that one lacks. Other columns are
not written, as there: rows that were read from a topic have `offset` and `timestampType` too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_pipeline.errors import ColumnError

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The types of each column, as Spark's `simpleString` names them."""


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """ColumnError when a column is missing or has a type that it cannot have.

    Args:
        types: the type of each column, as `DataType.simpleString` gives it.
        topic: the option, which wins over the column.
    """
    if "value" not in types:
        raise ColumnError("value", f"is required; there are {', '.join(types) or 'no columns'}")
    if topic is None and "topic" not in types:
        raise ColumnError("topic", "is required unless the option topic names the topic of all rows")
    for name, allowed in _TYPES.items():
        column_type = types.get(name)
        if column_type is not None and column_type not in allowed and not (name == "topic" and topic is not None):
            raise ColumnError(name, f"must be {' or '.join(allowed)}, not {column_type}")
