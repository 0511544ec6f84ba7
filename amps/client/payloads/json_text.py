"""JSON text: by orjson if it is installed, else by the standard library.

Both write compact UTF-8, refuse malformed text, and write NaN and infinities as null. They differ in numbers beyond 64
bits: orjson refuses to write them and reads them as floats, the standard library keeps them.
"""

import json
import math
from typing import Any, NoReturn

from amps.client.payloads.plain import plain, text_value

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]


def dumps(obj: Any) -> bytes:
    """The text of an object; numpy scalars become numbers, other types what `plain` says. Raises TypeError."""
    if orjson is None:
        return dumps_without_orjson(obj)
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return bytes(orjson.dumps(obj, default=text_value, option=options))


def loads(data: bytes | memoryview) -> Any:
    """The object in a text. Raises ValueError if it is not valid JSON."""
    return loads_without_orjson(data) if orjson is None else orjson.loads(data)


def dumps_without_orjson(obj: Any) -> bytes:
    """Like `dumps`, with the standard library."""
    value = _writable(plain(obj))
    try:
        return json.dumps(value, default=text_value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"str is not valid UTF-8: {error.reason}") from None


def loads_without_orjson(data: bytes | memoryview) -> Any:
    """Like `loads`, with the standard library."""
    return json.loads(str(data, "utf-8"), parse_constant=_refuse)


def _writable(value: Any) -> Any:
    """The value with keys that are texts or numbers, and without floats that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key): _writable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(entry) for entry in value]
    return value


def _key(key: Any) -> Any:
    if key is None or type(key) in (str, int, float, bool):
        return key
    value = plain(key)
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a key of a JSON object is a text or a number, not {type(key).__name__}")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")
