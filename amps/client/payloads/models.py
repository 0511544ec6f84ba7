"""Decoded bodies as objects of a type: `message.decode(Order)`.

Types: dataclasses, TypedDicts, NamedTuples, msgspec.Structs and pydantic models, nested in each other and in lists,
sets, tuples, dictionaries and unions; Enums and Literals; str, bool, int, float, bytes, Decimal, datetime, date, time
and UUID. msgspec and pydantic are used only for their own types. Members of a union are tried in their order.

A converter is built once for each type. Values are converted strictly: text is no number. The exceptions are formats
whose values are all text (`lax`), Decimal (also from numbers), and the types that bodies carry as text (`plain.py`).
Fields that the type lacks are ignored, so that publishers can add some.
"""

import base64
import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from amps.client.payloads.plain import is_named_tuple, is_pydantic_model, is_struct

Converter = Callable[[Any], Any]


class DecodeError(ValueError):
    """A body does not fit the type that it is to be decoded to."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        """The way to the wrong value, such as `legs[2].price`; empty if the body as a whole is wrong."""
        self.problem = problem
        """What is wrong with the value."""


class _Wrong(Exception):
    """A value is wrong. Each level on the way out adds a step to the path."""

    def __init__(self, problem: str, *steps: str) -> None:
        self.problem = problem
        """What is wrong with the value."""
        self.steps = list(steps)


def convert(value: Any, type_: Any, *, lax: bool = False) -> Any:
    """Convert a decoded value to a type; `Any` returns it unchanged. `lax`: numbers and booleans may be text.

    Raises DecodeError, a ValueError with the path of the wrong value, if the value does not fit the type. Raises
    TypeError if the type is none of those that this module lists.
    """
    if type_ is Any:
        return value
    try:
        return _converter(type_, lax)(value)
    except _Wrong as wrong:
        path = "".join(reversed(wrong.steps)).removeprefix(".")
        raise DecodeError(path, wrong.problem) from None


def convert_json(data: bytes, model: Any) -> Any:
    """Return a pydantic model from JSON text. It differs from `convert` for models that are strict."""
    try:
        return model.model_validate_json(data)
    except ValueError as error:
        wrong = _from_pydantic(error)
        raise DecodeError("".join(reversed(wrong.steps)).removeprefix("."), wrong.problem) from None


_built: dict[tuple[Any, bool], Converter] = {}
_BUILT_MAX = 10_000


def _converter(type_: Any, lax: bool) -> Converter:
    try:
        found = _built.get((type_, lax))
    except TypeError:  # a type with arguments that cannot be hashed
        return _build(type_, lax)
    if found is None:
        if len(_built) >= _BUILT_MAX:
            _built.clear()
        found = _built[type_, lax] = _build(type_, lax)
    return found


def _refuse(expected: str, value: Any) -> NoReturn:
    told = f"{type(value).__name__} {value!r}" if isinstance(value, str | int | float) else _kind(value)
    raise _Wrong(f"expected {expected}, not {told if len(told) <= 60 else told[:57] + '...'}")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return "an array"
    return type(value).__name__


# Building


def _build(type_: Any, lax: bool) -> Converter:
    origin = get_origin(type_)
    arguments = get_args(type_)
    if type_ is Any or type_ is object or isinstance(type_, typing.TypeVar):
        return _unchanged
    if type_ is None or type_ is types.NoneType:
        return _none
    if isinstance(type_, typing.NewType):
        return _converter(type_.__supertype__, lax)
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired, typing.Final):
        return _converter(arguments[0], lax)
    if hasattr(type_, "__value__"):  # an alias made with the statement `type`
        return lambda value: _converter(type_.__value__, lax)(value)
    if origin is Union or origin is types.UnionType:
        return _union(arguments, lax)
    if origin is Literal:
        return _literal(arguments)
    container = _container(origin or type_, arguments, lax)
    if container is not None:
        return container
    if isinstance(type_, type):
        return _class(type_, lax)
    if isinstance(origin, type) and dataclasses.is_dataclass(origin):  # a generic one; its variables mean any value
        return _class(origin, lax)
    raise TypeError(f"a message cannot be decoded to {type_!r}")


def _unchanged(value: Any) -> Any:
    return value


def _none(value: Any) -> None:
    if value is not None:
        _refuse("null", value)


def _class(type_: type, lax: bool) -> Converter:
    if is_pydantic_model(type_):
        return _pydantic(type_)
    if is_struct(type_):
        return _struct(type_, lax)
    if typing.is_typeddict(type_):
        return _typed_dict(type_, lax)
    if dataclasses.is_dataclass(type_):
        return _dataclass(type_, lax)
    if is_named_tuple(type_):
        return _named_tuple(type_, lax)
    if issubclass(type_, Enum):
        return _enum(type_, lax)
    single = (_LAX if lax else {}).get(type_) or _SINGLE.get(type_)
    if single is None:
        raise TypeError(f"a message cannot be decoded to {type_.__qualname__}")
    return single


def _union(members: tuple[Any, ...], lax: bool) -> Converter:
    optional = types.NoneType in members
    others = [member for member in members if member is not types.NoneType]
    converters = [_converter(member, lax) for member in others]
    exact = frozenset(member for member in others if member in (bool, int, float))

    def one(value: Any) -> Any:
        if value is None and optional:
            return None
        if type(value) in exact:
            return value
        if len(converters) == 1:
            return converters[0](value)
        problems = []
        for member, converter in zip(others, converters, strict=True):
            try:
                return converter(value)
            except _Wrong as wrong:
                where = "".join(reversed(wrong.steps)).removeprefix(".")
                name = getattr(member, "__name__", str(member))
                problems.append(f"{name}: {f'{where}: ' if where else ''}{wrong.problem}")
        raise _Wrong(f"fits none of the types ({'; '.join(problems)})")

    return one


def _literal(allowed: tuple[Any, ...]) -> Converter:
    def one(value: Any) -> Any:
        for each in allowed:
            if value == each and type(value) is type(each):
                return each
            if isinstance(each, Enum) and value == each.value:
                return each
        _refuse(f"one of {', '.join(map(repr, allowed))}", value)

    return one


def _enum(type_: type[Enum], lax: bool) -> Converter:
    by_text = {str(member.value): member for member in type_} if lax else {}

    def one(value: Any) -> Any:
        try:
            return type_(value)
        except ValueError:
            if isinstance(value, str) and value in by_text:
                return by_text[value]
            allowed = ", ".join(repr(member.value) for member in type_)
            _refuse(f"one of {allowed}", value)

    return one


# Containers


def _container(kind: Any, arguments: tuple[Any, ...], lax: bool) -> Converter | None:
    if kind in (list, Sequence, Iterable, Collection):
        return _array(list, arguments, lax)
    if kind in (set, AbstractSet, frozenset):
        return _array(frozenset if kind is frozenset else set, arguments, lax)
    if kind is tuple and (not arguments or arguments[-1] is Ellipsis):
        return _array(tuple, arguments[:1], lax)
    if kind is tuple:
        return _fixed_tuple(arguments, lax)
    if kind in (dict, Mapping, MutableMapping):
        return _dictionary(arguments, lax)
    return None


def _elements(value: Any) -> Sequence[Any]:
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, Sequence | AbstractSet):
        _refuse("an array", value)
    return list(value)


def _array(make: Callable[[Iterable[Any]], Any], arguments: tuple[Any, ...], lax: bool) -> Converter:
    each = _converter(arguments[0] if arguments else Any, lax)

    def array(value: Any) -> Any:
        elements = _elements(value)
        converted = []
        for element in elements:
            try:
                converted.append(each(element))
            except _Wrong as wrong:
                wrong.steps.append(f"[{len(converted)}]")
                raise
        try:
            return make(converted)
        except TypeError as error:  # elements of a set that cannot be hashed
            raise _Wrong(str(error)) from None

    return array


def _fixed_tuple(arguments: tuple[Any, ...], lax: bool) -> Converter:
    converters = [_converter(argument, lax) for argument in arguments]

    def fixed(value: Any) -> Any:
        elements = _elements(value)
        if len(elements) != len(converters):
            raise _Wrong(f"expected an array of {len(converters)} values, not of {len(elements)}")
        return tuple(_each(f"[{at}]", each, elements[at]) for at, each in enumerate(converters))

    return fixed


def _each(step: str, converter: Converter, value: Any) -> Any:
    try:
        return converter(value)
    except _Wrong as wrong:
        wrong.steps.append(step)
        raise


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        _refuse("an object", value)
    return value


def _dictionary(arguments: tuple[Any, ...], lax: bool) -> Converter:
    key_type, value_type = arguments or (Any, Any)
    key_of = _converter(key_type, True)  # JSON has only text as keys
    value_of = _converter(value_type, lax)
    return lambda value: {
        _each(f".{key}", key_of, key): _each(f".{key}", value_of, each) for key, each in _mapping(value).items()
    }


# Models


def _hints(type_: type) -> dict[str, Any]:
    try:
        return get_type_hints(type_, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"a type in the annotations of {type_.__qualname__} is not known in its module: {error}"
        ) from None


def _made(make: Callable[..., Any], values: dict[str, Any]) -> Any:
    try:
        return make(**values)
    except (ValueError, TypeError) as error:  # the check of a __post_init__
        raise _Wrong(str(error)) from None


def _fields(
    type_: type, lax: bool, names: Iterable[str], required: AbstractSet[str], make: Callable[..., Any]
) -> Converter:
    """The converter of an object with named fields. Its fields' converters are built when it is first used, since a
    type may contain itself.
    """
    converters: list[tuple[str, str, Converter, bool]] = []
    listed = tuple(names)

    def build() -> None:
        hints = _hints(type_)
        converters[:] = [
            (name, f".{name}", _converter(hints.get(name, Any), lax), name in required) for name in listed
        ]

    def one(value: Any) -> Any:
        if type(value) is type_:
            return value
        given = _mapping(value)
        if not converters and listed:
            build()
        values = {}
        for name, step, converter, needed in converters:
            if name in given:
                try:
                    values[name] = converter(given[name])
                except _Wrong as wrong:
                    wrong.steps.append(step)
                    raise
            elif needed:
                raise _Wrong("the field is missing", step)
        return _made(make, values)

    return one


def _dataclass(type_: Any, lax: bool) -> Converter:
    fields = [field for field in dataclasses.fields(type_) if field.init]
    missing = dataclasses.MISSING
    required = {f.name for f in fields if f.default is missing and f.default_factory is missing}
    return _fields(type_, lax, [field.name for field in fields], required, type_)


def _typed_dict(type_: Any, lax: bool) -> Converter:
    return _fields(type_, lax, type_.__annotations__, type_.__required_keys__, dict)


def _named_tuple(type_: Any, lax: bool) -> Converter:
    required = set(type_._fields) - set(type_._field_defaults)
    by_name = _fields(type_, lax, type_._fields, required, type_)

    def one(value: Any) -> Any:
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | type_):
            if len(value) > len(type_._fields):
                raise _Wrong(f"expected an array of {len(type_._fields)} values, not of {len(value)}")
            value = dict(zip(type_._fields, value, strict=False))
        return by_name(value)

    return one


def _struct(type_: type, lax: bool) -> Converter:
    msgspec = sys.modules["msgspec"]

    def hook(kind: Any, value: Any) -> Any:
        return _converter(kind, lax)(value)

    def one(value: Any) -> Any:
        try:
            return msgspec.convert(value, type_, strict=not lax, dec_hook=hook)
        except msgspec.ValidationError as error:
            problem, _, at = str(error).partition(" - at `$")
            raise _Wrong(problem.replace("`", ""), at.removesuffix("`")) from None

    return one


def _pydantic(type_: Any) -> Converter:
    def one(value: Any) -> Any:
        try:
            return type_.model_validate(value)
        except ValueError as error:
            raise _from_pydantic(error) from None

    return one


def _from_pydantic(error: Any) -> _Wrong:
    """The first of the errors of a pydantic model."""
    errors = error.errors(include_url=False)
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in errors[0]["loc"]]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return _Wrong(errors[0]["msg"] + more, *reversed(steps))


# Single values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse("a text", value)
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse("a boolean", value)
    return value


def _integer(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse("an integer", value)
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        _refuse("a number", value)
    return float(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            _refuse("bytes, or Base64 text", value)
    if not isinstance(value, bytes | bytearray | memoryview):
        _refuse("bytes, or Base64 text", value)
    return bytes(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            pass
    _refuse("a decimal number", value)


def _from_text(type_: Any, expected: str, read: Callable[[str], Any]) -> Converter:
    def one(value: Any) -> Any:
        if isinstance(value, type_):
            return value
        if isinstance(value, str):
            try:
                return read(value)
            except ValueError:
                pass
        _refuse(expected, value)

    return one


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    read: date = _from_text(date, "an ISO-8601 date", date.fromisoformat)(value)
    return read


_SINGLE: dict[Any, Converter] = {
    str: _text,
    bool: _boolean,
    int: _integer,
    float: _number,
    bytes: _bytes,
    bytearray: lambda value: bytearray(_bytes(value)),
    Decimal: _decimal,
    datetime: _from_text(datetime, "an ISO-8601 time with date", datetime.fromisoformat),
    date: _date,
    time: _from_text(time, "an ISO-8601 time", time.fromisoformat),
    UUID: _from_text(UUID, "a UUID", UUID),
}
"""Converters of strict formats."""

_BOOLEANS = {"true": True, "y": True, "1": True, "false": False, "n": False, "0": False}


def _lax_boolean(value: Any) -> bool:
    found = _BOOLEANS.get(value.lower()) if isinstance(value, str) else None
    return _boolean(value) if found is None else found


def _lax_number(strict: Converter, read: Callable[[str], Any], expected: str) -> Converter:
    def one(value: Any) -> Any:
        if isinstance(value, str):
            try:
                return read(value)
            except ValueError:
                _refuse(expected, value)
        return strict(value)

    return one


_LAX: dict[Any, Converter] = {
    bool: _lax_boolean,
    int: _lax_number(_integer, int, "an integer"),
    float: _lax_number(_number, float, "a number"),
}
"""Converters of formats whose values are all text; for the other types, those of strict formats."""
