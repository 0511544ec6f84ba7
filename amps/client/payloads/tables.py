"""Messages as tables: `to_pandas` and `to_arrow`, of lists of messages and of streams.

One row for each message with content (publish, sow, oof). Bodies are decoded with the connection's codec. A body with
fields is flattened: {"leg": {"price": 1}} gives the column `leg.price`; arrays stay in one column. Any other body is
one value, in the column `data`. A field that a message lacks is null. pandas and pyarrow are imported when they are
needed.
"""

import importlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from amps.client.enums import Timeout
from amps.client.errors import AMPSException
from amps.client.protocol.command import check_number, check_timeout
from amps.client.protocol.message import Message

if TYPE_CHECKING:
    import pandas
    import pyarrow

Headers = Iterable[str] | Mapping[str, str]
"""Attributes of Message as columns, such as ["bookmark", "timestamp"]; or attribute to column."""

DATA = "data"
"""The column of bodies without fields."""

_INT64 = range(-(2**63), 2**63)
T = TypeVar("T", covariant=True)


class Source(Protocol[T]):
    """A stream: `get` returns the next message, None if none arrives in time, and raises EOFError at the end."""

    def get(self, timeout: Timeout = None) -> T:
        """Return the next message."""


class TableError(ValueError):
    """Messages cannot become a table: a body is malformed, or the values of a column have no common type."""

    def __init__(self, text: str, messages: list[Message]) -> None:
        super().__init__(text)
        self.messages = messages
        """The messages that were read, so that those taken from a stream are not lost."""


def to_pandas(
    messages: Iterable[Message], *, headers: Headers = (), separator: str | None = "."
) -> "pandas.DataFrame":
    """Return messages as a pandas.DataFrame; needs the package pandas.

    - headers: attributes of the messages as columns before those of the bodies: ["topic", "bookmark"], or attributes
      with names of columns: {"timestamp": "received"}.
    - separator: between the names of nested fields; None leaves them as dictionaries.

    Columns of integers or booleans with missing values have the types Int64 and boolean of pandas, which keep them
    exact.
    Raises TableError if a body is malformed, or has a field with the name of a header's column.
    """
    return pandas_maker(headers, separator)(list(messages))


def to_arrow(
    messages: Iterable[Message],
    *,
    headers: Headers = (),
    separator: str | None = ".",
    schema: "pyarrow.Schema | None" = None,
) -> "pyarrow.Table":
    """Return messages as a pyarrow.Table; needs the package pyarrow.

    `headers` and `separator` are as for `to_pandas`. `schema` has the columns to return and their types; without it,
    they follow from the values. Raises TableError as `to_pandas` does, and with the name of the column if its values
    have no common type, or do not fit the type of the schema.
    """
    return arrow_maker(headers, separator, schema)(list(messages))


def pandas_maker(headers: Headers, separator: str | None) -> "Callable[[list[Message]], pandas.DataFrame]":
    """Return the function that makes tables. So wrong arguments and a missing package are refused before messages are
    read.
    """
    pandas = _package("pandas", "to_pandas")
    pairs = _checked_headers(headers)

    def make(messages: list[Message]) -> Any:
        columns, rows = _columns(messages, pairs, separator)
        series = {name: pandas.Series(values, dtype=_pandas_type(values)) for name, values in columns.items()}
        return pandas.DataFrame(series, index=pandas.RangeIndex(rows))

    return make


def arrow_maker(
    headers: Headers, separator: str | None, schema: "pyarrow.Schema | None"
) -> "Callable[[list[Message]], pyarrow.Table]":
    """Like `pandas_maker`."""
    arrow = _package("pyarrow", "to_arrow")
    pairs = _checked_headers(headers)

    def array(name: str, values: list[Any], kind: Any, messages: list[Message]) -> Any:
        try:
            return arrow.array(values, type=kind)
        except (arrow.ArrowException, TypeError, OverflowError) as error:
            remedy = "; pass schema= to choose a type" if kind is None else ""
            raise TableError(f"column {name!r}: {error}{remedy}", messages) from None

    def make(messages: list[Message]) -> Any:
        columns, rows = _columns(messages, pairs, separator)
        if schema is None:
            arrays = [array(name, values, None, messages) for name, values in columns.items()]
            return arrow.Table.from_arrays(arrays, names=list(columns))
        missing = [None] * rows
        arrays = [array(f.name, columns.get(f.name, missing), f.type, messages) for f in schema]
        return arrow.Table.from_arrays(arrays, schema=schema)

    return make


def read(
    source: Source[Message | None], max_messages: int | None = None, timeout: Timeout = None
) -> list[Message]:
    """Read messages of a stream: up to its end, at most `max_messages`, for at most `timeout` seconds.

    With a limit, an error of the stream ends the batch if messages were read before; the next call raises it. Without a
    limit the error is raised, since the messages before it are not the whole stream.
    """
    batch = _Batch(max_messages, timeout)
    try:
        while batch.open:
            batch.add(source.get(batch.left_s()))
    except EOFError:
        pass
    except AMPSException:
        if not batch.partial:
            raise
    return batch.messages


async def read_async(
    source: Source[Awaitable[Message | None]],
    give_back: Callable[[list[Message]], object],
    max_messages: int | None = None,
    timeout: Timeout = None,
) -> list[Message]:
    """Like `read`, for a stream of the asyncio client. If it is cancelled, the stream gets its messages back."""
    batch = _Batch(max_messages, timeout)
    try:
        while batch.open:
            batch.add(await source.get(batch.left_s()))
    except EOFError:
        pass
    except AMPSException:
        if not batch.partial:
            raise
    except BaseException:
        give_back(batch.messages)
        raise
    return batch.messages


class _Batch:
    """The messages of a batch, and its limits."""

    def __init__(self, max_messages: int | None, timeout: Timeout) -> None:
        if max_messages is not None:
            check_number("max_messages", max_messages, least=1)
        seconds = check_timeout(timeout)
        self.messages: list[Message] = []
        self.open = True
        self._max_messages = max_messages
        self._deadline = None if seconds is None else time.monotonic() + seconds

    @property
    def partial(self) -> bool:
        """Whether the messages before an error are a batch of their own."""
        limited = self._max_messages is not None or self._deadline is not None
        return limited and bool(self.messages)

    def left_s(self) -> float | None:
        """The seconds left for the next message; None = no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def add(self, message: Message | None) -> None:
        """Add a message; None, or the last one allowed, ends the batch."""
        if message is not None:
            self.messages.append(message)
        self.open = message is not None and len(self.messages) != self._max_messages


def _package(name: str, call: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"{call}() needs the package {name}: pip install {name}", name=name) from None


def _checked_headers(headers: Headers) -> dict[str, str]:
    """Return attribute to column. Raises TypeError, ValueError."""
    if isinstance(headers, str):
        raise TypeError(f"headers are a list of attributes, not one: [{headers!r}]")
    pairs = dict(headers) if isinstance(headers, Mapping) else {name: name for name in headers}
    for attribute in pairs:
        if attribute.startswith("_") or not inspect.isdatadescriptor(getattr(Message, attribute, None)):
            raise ValueError(f"a message has no header {attribute!r}")
    return pairs


def _columns(
    messages: list[Message], headers: dict[str, str], separator: str | None
) -> tuple[dict[str, list[Any]], int]:
    """The columns, all of the same length, and that length."""
    columns: dict[str, list[Any]] = {column: [] for column in headers.values()}
    row = 0
    for message in messages:
        if not message.is_content:
            continue
        for attribute, column in headers.items():
            columns[column].append(getattr(message, attribute))
        try:
            fields = list(_fields(message, separator))
        except ValueError as error:
            raise TableError(f"the body of message {row}, counted from 0: {error}", messages) from error
        for name, value in fields:
            values = columns.get(name)
            if values is None:
                values = columns[name] = []
            elif len(values) > row and name in headers.values():
                text = f"the bodies have a field {name!r}: give the column of the header another name, headers={{...}}"
                raise TableError(text, messages)
            if len(values) < row:
                values.extend([None] * (row - len(values)))
            values[row:] = [value]  # of two fields with one name, such as "a.b" and a nested b, the later one
        row += 1
    for values in columns.values():
        values.extend([None] * (row - len(values)))
    return columns, row


def _fields(message: Message, separator: str | None) -> Iterable[tuple[str, Any]]:
    if not len(message.view):
        return ()
    body = message.decode()
    if not isinstance(body, Mapping):
        return ((DATA, body),)
    return _flat("", body, separator)


def _flat(prefix: str, body: Mapping[Any, Any], separator: str | None) -> Iterable[tuple[str, Any]]:
    for key, value in body.items():
        if separator is not None and isinstance(value, Mapping):
            yield from _flat(f"{prefix}{key}{separator}", value, separator)
        else:
            yield f"{prefix}{key}", value


def _pandas_type(values: list[Any]) -> str | None:
    """The type of a column whose missing values would otherwise turn integers into floats, booleans into objects."""
    kinds = set(map(type, values))
    if kinds == {int, type(None)} and all(value is None or value in _INT64 for value in values):
        return "Int64"
    return "boolean" if kinds == {bool, type(None)} else None
