"""Objects of applications as values that codecs can encode: dataclasses, TypedDicts, msgspec.Structs, pydantic models.

A model becomes a dictionary of its fields, under the names that its own serialisation uses (aliases of pydantic,
`rename` of msgspec). Types without an equivalent in a body become text: Decimal in digits, datetime, date and time in
ISO-8601, UUID in hexadecimal, bytes in Base64 where the message type is text. An Enum becomes its value, a set a list,
a numpy value one of Python. Values inside pydantic models and Structs become what these packages make of them.
"""

import base64
import dataclasses
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID


def is_pydantic_model(type_: Any) -> bool:
    """Whether a type is a pydantic model. Its class exists only if pydantic has been imported."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def is_struct(type_: Any) -> bool:
    """Whether a type is a msgspec.Struct. Its class exists only if msgspec has been imported."""
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def is_named_tuple(type_: Any) -> bool:
    """Whether a type is a NamedTuple."""
    return isinstance(type_, type) and issubclass(type_, tuple) and hasattr(type_, "_fields")


def text_value(obj: Any) -> Any:
    """Return a value for a text codec that does not know the object's type. Raises TypeError for other objects.

    Values inside the result may be such objects again.
    """
    if isinstance(obj, bytes | bytearray | memoryview):
        return base64.b64encode(obj).decode("ascii")
    if is_pydantic_model(type(obj)):
        return obj.model_dump(mode="json", by_alias=True)
    if is_struct(type(obj)):
        return sys.modules["msgspec"].to_builtins(obj, enc_hook=text_value)
    return _value(obj)


def binary_value(obj: Any) -> Any:
    """Like `text_value`, for a codec that can carry bytes."""
    if is_pydantic_model(type(obj)):
        return obj.model_dump(mode="python", by_alias=True)
    if is_struct(type(obj)):
        kept = (bytes, bytearray, datetime)
        return sys.modules["msgspec"].to_builtins(obj, builtin_types=kept, enc_hook=binary_value)
    return _value(obj)


def _value(obj: Any) -> Any:
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}
    if is_named_tuple(type(obj)):
        return obj._asdict()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, numpy.generic | numpy.ndarray):
        return obj.tolist()
    match obj:
        case Enum():
            return obj.value
        case Decimal() | UUID():
            return str(obj)
        case datetime() | date() | time():
            return obj.isoformat()
        case Mapping():
            return dict(obj)
        case set() | frozenset() | tuple():
            return list(obj)
    raise TypeError(f"Type is not serializable: {type(obj).__name__}")


def plain(obj: Any, convert: Callable[[Any], Any] = text_value, *, datetimes: bool = False) -> Any:
    """Return an object as dictionaries, lists and single values, all through, for codecs without a hook for types.

    `convert` is `text_value` or `binary_value`; bytes are kept, and datetimes if `datetimes`. Raises TypeError with the
    path of a value that no body can carry.
    """
    return _plain(obj, "", convert, datetimes)


def _plain(obj: Any, path: str, convert: Callable[[Any], Any], datetimes: bool) -> Any:
    if isinstance(obj, Enum):  # before str and int, of which some are subclasses
        return _plain(obj.value, path, convert, datetimes)
    if obj is None or isinstance(obj, str | int | float | bytes | bytearray | memoryview):
        return obj
    if datetimes and isinstance(obj, datetime):
        return obj
    if isinstance(obj, dict):
        return {key: _plain(value, f"{path}.{key}", convert, datetimes) for key, value in obj.items()}
    if isinstance(obj, list) or type(obj) is tuple:
        return [_plain(value, f"{path}[{at}]", convert, datetimes) for at, value in enumerate(obj)]
    try:
        value = convert(obj)
    except TypeError as error:
        raise TypeError(_cannot_encode(obj, path, error)) from None
    return _plain(value, path, convert, datetimes)


def _cannot_encode(obj: Any, path: str, error: TypeError) -> str:
    where = f"{path.removeprefix('.')}: " if path else ""
    # A model of another library names the type of the value inside it that it cannot convert.
    inner = f" ({error})" if is_pydantic_model(type(obj)) or is_struct(type(obj)) else ""
    return f"{where}a message body cannot carry an object of type {type(obj).__name__}{inner}"


def unsupported(obj: Any) -> str | None:
    """Return the error text for the first value, in order of fields, that no body can carry; None if all can be."""
    try:
        plain(obj)
    except TypeError as error:
        return str(error)
    return None
