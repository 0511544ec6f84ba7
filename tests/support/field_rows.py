"""Rows that FieldColumns makes of payloads, as Python objects."""

from typing import Any

from amps._core.columns.columns import FieldColumns
from amps.spark.payload_schema import parse_ddl


def rows_of(message_type: str, fields: Any, *payloads: bytes, **settings: Any) -> list[dict[str, Any]]:
    columns = FieldColumns(message_type, parse_ddl(fields) if isinstance(fields, str) else fields, **settings)
    for payload in payloads:
        columns.add_payload(payload)
    made = columns.finish()
    made.validate(full=True)
    assert len(made) == len(payloads)
    return made.to_pylist()


def one(message_type: str, of: str, payload: bytes) -> Any:
    """The field `a` of a message, as a type."""
    return rows_of(message_type, f"a {of}", payload)[0]["a"]
