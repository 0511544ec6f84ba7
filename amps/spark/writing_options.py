"""The options and columns of a write, checked on the driver before anything is published.

Options; they apply to `df.write.format("amps")` and `df.writeStream.format("amps")` unless noted:

| option | | meaning |
| --- | --- | --- |
| `uri` | required | connection string, `tcp://user:password@host:port/amps/json` |
| `message_type` | | if the URI has none; default: `json` for columns, else the one of the transport |
| `topic` | this or a column `topic` | the topic of all rows |
| `client_name` | `spark` | first part of the publishers' names; required with `run_id` and `run_number` |
| `run_id` | batch only, random | name of this write: the same rows written again under it are not published twice |
| `run_number` | batch only | like `run_id`, a number that rises from write to write, 0 to 2**31 - 1 |
| `verify` | `all` | the existing rows that a repeated task compares with its own: `all`, the `last`, or `none` |
| `unrecorded` | `refuse` | `allow`: also topics that no transaction log records; rows may be lost or come twice |
| `timeout_s` | 60 | seconds without any progress (of connecting, of acknowledgements) after which a task fails |
| `max_unacknowledged` | 32MB | limit of unacknowledged data of a task, in bytes, or with KB, MB, GB |

Columns: either `payload` (binary or string), which is published unchanged, or any other columns, which together
become one JSON object per row. The columns `topic` (string), `expiration` (whole seconds), `correlation_id` and
`sow_key` (strings of Base64 characters) set header fields in both cases. A null means that the field is not set.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pyspark.sql import types as sql

from amps.client import AMPSException
from amps.client.protocol.command import check_text
from amps.client.uri import parse_uri
from amps.spark.writing_errors import WriteOptionError
from amps.spark.writing_numbers import (
    MAX_RUN,
    Numbering,
    numbered_publisher,
    run_publisher,
    stream_publisher,
)

Verify = Literal["all", "last", "none"]

DEFAULT_CLIENT_NAME = "spark"
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_UNACKNOWLEDGED_BYTES = 32 * 2**20
LEAST_UNACKNOWLEDGED_BYTES = 64 * 2**10

_KNOWN = frozenset(
    ("uri", "message_type", "topic", "client_name", "run_id", "run_number", "verify", "unrecorded", "timeout_s",
     "max_unacknowledged")
)  # fmt: skip
_OF_SPARK = frozenset(("path", "checkpointlocation", "queryname"))
_UNITS = {"": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30}

HEADER_COLUMNS = ("topic", "expiration", "correlation_id", "sow_key")
_TEXT = (sql.StringType,)
_WHOLE = (sql.ByteType, sql.ShortType, sql.IntegerType, sql.LongType)
_JSON_SCALARS = (
    sql.BooleanType, *_WHOLE, sql.FloatType, sql.DoubleType, sql.DecimalType, sql.StringType, sql.BinaryType,
    sql.DateType, sql.TimestampType, sql.TimestampNTZType, sql.NullType,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The checked options of one write."""

    uri: str
    """The connection string, with the message type if one was given."""
    topic: str | None
    client_name: str
    run_id: str
    run_number: int | None
    verify: Verify
    allow_unrecorded: bool
    timeout_s: float
    unacknowledged_bytes: int

    def batch_numbering(self, partition: int) -> Numbering:
        """Return publisher and sequence numbers of a partition of a batch write."""
        if self.run_number is not None:
            return Numbering(numbered_publisher(self.client_name, partition), self.run_number)
        return Numbering(run_publisher(self.client_name, self.run_id, partition), 0)

    def stream_numbering(self, query_id: str, batch_id: int, partition: int) -> Numbering:
        """Return publisher and sequence numbers of a partition of a micro-batch."""
        return Numbering(stream_publisher(self.client_name, query_id, partition), batch_id)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The positions of the columns by their purpose; -1 = there is none."""

    payload: int
    topic: int
    expiration: int
    correlation_id: int
    sow_key: int
    body: tuple[int, ...]
    """The columns of the JSON object; empty with a `payload` column."""


def plan_write(
    options: Mapping[str, str], schema: sql.StructType, *, streaming: bool
) -> tuple[WriteOptions, ColumnPlan]:
    """Return the checked options and the column plan of a write. Raises WriteOptionError."""
    has_payload = any(field.name.lower() == "payload" for field in schema.fields)
    parsed = parse_options(options, streaming=streaming, default_type=None if has_payload else "json")
    return parsed, plan_columns(schema, parsed)


def parse_options(
    options: Mapping[str, str], *, streaming: bool, default_type: str | None = None
) -> WriteOptions:
    """Check the options given to Spark; their names are not case-sensitive. Raises WriteOptionError.

    default_type: the message type if neither the URI nor an option has one; None leaves it to the transport.
    """
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(given.keys() - _KNOWN - _OF_SPARK)
    if unknown:
        raise WriteOptionError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(_KNOWN))}")
    if "path" in given:
        raise WriteOptionError(
            "the amps format is written to a server, not to a path: use save() and option uri"
        )
    if streaming:
        for name in ("run_id", "run_number"):
            if name in given:
                raise WriteOptionError(
                    f"option {name!r} is for batches: a stream's checkpoint determines its runs"
                )
    if "run_id" in given and "run_number" in given:
        raise WriteOptionError("give run_id or run_number, not both")
    if "client_name" not in given and given.keys() & {"run_id", "run_number"}:
        raise WriteOptionError(
            "run_id and run_number need a client_name: jobs must not share their publishers"
        )
    topic = given.get("topic")
    if topic is not None:
        _check_topic(topic)
    return WriteOptions(
        uri=complete_uri(given, default_type),
        topic=topic,
        client_name=name_part("client_name", given.get("client_name", DEFAULT_CLIENT_NAME)),
        run_id=name_part("run_id", given.get("run_id", uuid.uuid4().hex)),
        run_number=_run_number(given.get("run_number")),
        verify=cast(Verify, _choice("verify", given.get("verify", "all"), ("all", "last", "none"))),
        allow_unrecorded=_choice("unrecorded", given.get("unrecorded", "refuse"), ("refuse", "allow"))
        == "allow",
        timeout_s=positive_seconds(given.get("timeout_s")),
        unacknowledged_bytes=_bytes(given.get("max_unacknowledged")),
    )


def plan_columns(schema: sql.StructType, options: WriteOptions) -> ColumnPlan:
    """Return the purpose of each column. Raises WriteOptionError if the rows cannot be written."""
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = field.name.lower()
        if name in places and name in (*HEADER_COLUMNS, "payload"):
            raise WriteOptionError(f"there are two columns {name!r}")
        places[name] = place
    _check_types(schema, places)
    if "topic" in places and options.topic is not None:
        raise WriteOptionError("give the topic as an option or as a column, not both: drop one of them")
    if "topic" not in places and options.topic is None:
        raise WriteOptionError("no topic: give option topic, or a column topic")
    rest = tuple(
        place
        for place, field in enumerate(schema.fields)
        if field.name.lower() not in (*HEADER_COLUMNS, "payload")
    )
    if "payload" in places:
        if rest:
            names = ", ".join(repr(schema.fields[place].name) for place in rest)
            raise WriteOptionError(
                f"with a column payload there is no place for {names}: select what is to be written, or drop payload"
            )
    else:
        _check_json(schema, rest, options)
    return ColumnPlan(
        payload=places.get("payload", -1),
        topic=places.get("topic", -1),
        expiration=places.get("expiration", -1),
        correlation_id=places.get("correlation_id", -1),
        sow_key=places.get("sow_key", -1),
        body=() if "payload" in places else rest,
    )


def _check_types(schema: sql.StructType, places: Mapping[str, int]) -> None:
    wanted = {
        "payload": ((sql.BinaryType, sql.StringType), "binary or string"),
        "topic": (_TEXT, "string"),
        "expiration": (_WHOLE, "a whole number of seconds"),
        "correlation_id": (_TEXT, "string"),
        "sow_key": (_TEXT, "string"),
    }
    for name, (kinds, told) in wanted.items():
        place = places.get(name)
        if place is not None and not isinstance(schema.fields[place].dataType, kinds):
            is_type = schema.fields[place].dataType.simpleString()
            raise WriteOptionError(f"column {name!r} must be {told}, not {is_type}")


def _check_json(schema: sql.StructType, body: tuple[int, ...], options: WriteOptions) -> None:
    if not body:
        raise WriteOptionError("no column to publish: give payload, or columns that make a JSON object")
    message_type = parse_uri(options.uri).message_type
    if message_type != "json":
        raise WriteOptionError(
            f"columns become JSON, but the message type is {message_type!r}: make a column payload yourself"
        )
    names: set[str] = set()
    for place in body:
        field = schema.fields[place]
        if field.name in names:
            raise WriteOptionError(f"there are two columns {field.name!r}")
        names.add(field.name)
        _check_json_type(field.name, field.dataType)


def _check_json_type(path: str, kind: sql.DataType) -> None:
    if isinstance(kind, sql.StructType):
        for field in kind.fields:
            _check_json_type(f"{path}.{field.name}", field.dataType)
    elif isinstance(kind, sql.ArrayType):
        _check_json_type(f"{path}[]", kind.elementType)
    elif isinstance(kind, sql.MapType):
        if not isinstance(kind.keyType, (*_TEXT, *_WHOLE)):
            raise WriteOptionError(
                f"column {path!r} cannot become JSON: keys of a map must be strings or whole numbers,"
                f" not {kind.keyType.simpleString()}"
            )
        _check_json_type(f"{path}{{}}", kind.valueType)
    elif not isinstance(kind, _JSON_SCALARS):
        raise WriteOptionError(f"column {path!r} cannot become JSON: it is {kind.simpleString()}; cast it")


def complete_uri(given: Mapping[str, str], default_type: str | None) -> str:
    """Return the URI; if it has no message type, add the one of the option or the default."""
    uri = given.get("uri")
    if not uri:
        raise WriteOptionError("no uri: give option uri, for example tcp://localhost:9007/amps/json")
    try:
        known = parse_uri(uri).message_type
    except AMPSException as error:
        raise WriteOptionError(f"option uri: {error}") from None
    asked = given.get("message_type")
    if known is not None:
        if asked is not None and asked != known:
            raise WriteOptionError(f"option message_type is {asked!r}, the URI has {known!r}")
        return uri
    added = asked or default_type
    if added is None:
        return uri
    location, mark, query = uri.partition("?")
    completed = f"{location.rstrip('/')}/{added}{mark}{query}"
    try:
        parse_uri(completed)
    except AMPSException as error:
        raise WriteOptionError(f"option message_type {added!r}: {error}") from None
    return completed


def _check_topic(topic: str) -> None:
    if not topic:
        raise WriteOptionError("option topic is empty")
    try:
        check_text("topic", topic)
    except ValueError as error:
        raise WriteOptionError(f"option topic: {error}") from None


def name_part(option: str, text: str) -> str:
    """Check a part of a client name: it must not contain the separators of the parts."""
    if not text or "/" in text or "[" in text or "]" in text or not text.isprintable():
        raise WriteOptionError(f"option {option} must be printable text without / [ ]: {text!r}")
    return text


def _choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise WriteOptionError(f"option {option} must be one of {', '.join(choices)}: {text!r}")
    return text.lower()


def _run_number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_RUN:
        raise WriteOptionError(f"option run_number must be a whole number from 0 to {MAX_RUN}: {text!r}")
    return int(text)


def positive_seconds(text: str | None) -> float:
    if text is None:
        return DEFAULT_TIMEOUT_S
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise WriteOptionError(f"option timeout_s must be a positive number of seconds: {text!r}")
    return value


def _bytes(text: str | None) -> int:
    if text is None:
        return DEFAULT_UNACKNOWLEDGED_BYTES
    digits = text.rstrip("kKmMgGbB")
    factor = _UNITS.get(text[len(digits) :].lower())
    if factor is None or not (digits.isascii() and digits.isdigit()):
        raise WriteOptionError(f"option max_unacknowledged must be a size like 32MB: {text!r}")
    if int(digits) * factor < LEAST_UNACKNOWLEDGED_BYTES:
        raise WriteOptionError(
            f"option max_unacknowledged must be at least {LEAST_UNACKNOWLEDGED_BYTES} bytes"
        )
    return int(digits) * factor
