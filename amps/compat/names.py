"""The spellings and units of the documented API: camelCase twins of methods, milliseconds, empty values."""

from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def with_twins(cls: C) -> C:
    """Give each public method of a class a twin in camelCase: `set_sub_id` and `setSubId`."""
    for name in dir(cls):
        if name.startswith("_") or "_" not in name:
            continue
        first, *rest = name.split("_")
        twin = first + "".join(word[:1].upper() + word[1:] for word in rest)
        method = getattr(cls, name)
        if callable(method) and not isinstance(method, type):
            setattr(cls, twin, cls.__dict__.get(name, method))
    return cls


def seconds(milliseconds: float | None) -> float | None:
    """Return a time limit of the documented API in seconds; 0 means no limit, which is None."""
    if milliseconds is None:
        return None
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool) or milliseconds < 0:
        raise ValueError(f"a time is a number of milliseconds, 0 = no limit: {milliseconds!r}")
    return milliseconds / 1000 if milliseconds else None


def text(value: str | bytes) -> str:
    """Return a text that may be given as UTF-8 bytes, such as a topic."""
    return value.decode() if isinstance(value, bytes) else value


def body(data: Any) -> Any:
    """Return a body; in text, bytes that are not UTF-8 are what `Message.get_data` makes of them."""
    return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data


def milliseconds(value: float | None) -> int:
    """Return seconds as whole milliseconds, 0 for no limit."""
    return 0 if value is None else round(value * 1000)


def bound(call: str, names: tuple[str, ...], positional: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name. The documented order has an optional handler before all others.

    Raises TypeError as Python does for functions.
    """
    values = dict(given)
    if positional and (callable(positional[0]) or positional[0] is None):
        names = ("handler", *names)
    if len(positional) > len(names):
        raise TypeError(f"{call}() takes at most {len(names)} positional arguments, {len(positional)} were given")
    for name, value in zip(names, positional, strict=False):
        if name in values:
            raise TypeError(f"{call}() got multiple values for argument {name!r}")
        values[name] = value
    for name, value in values.items():
        if isinstance(value, bytes) and name != "data":
            values[name] = text(value)
    for name in values:
        if name != "handler" and name not in names:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
    handler = values.get("handler")
    if handler is not None and not callable(handler):
        raise TypeError(f"{call}(): a handler must be callable, not {type(handler).__name__}")
    if "topic" in names and "topic" not in values:
        raise TypeError(f"{call}() needs a topic")
    return values
