"""Models as bodies: what `publish(topic, obj)` encodes, `message.decode(type)` returns, with paths in the errors."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
from uuid import UUID

import pytest

from amps.client import DecodeError
from amps.client.payloads.codecs import codec_for, decode_body
from amps.client.payloads.models import convert

UUID_TEXT = "12345678-1234-5678-1234-567812345678"


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Tag(TypedDict):
    name: str
    weight: NotRequired[float]


OrderId = NewType("OrderId", int)


@dataclass
class Leg:
    price: Decimal
    side: Side = Side.BUY


@dataclass
class Order:
    id: OrderId
    when: datetime
    legs: list[Leg]
    day: date | None = None
    at: time | None = None
    level: Level = Level.LOW
    raw: bytes = b""
    tags: Mapping[str, Tag] = field(default_factory=dict)
    point: Point = Point(0)  # noqa: RUF009
    uuid: UUID | None = None
    names: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")
    numbers: tuple[float, ...] = ()
    parent: Optional["Order"] = None
    kind: Literal["new", "old"] = "new"
    ratio: Annotated[float, "checked elsewhere"] = 0.0
    extra: Any = None


def order(number: int = 7, **more: Any) -> Order:
    return Order(
        id=OrderId(number),
        when=datetime(2024, 3, 1, 9, 30, tzinfo=UTC),
        legs=[Leg(Decimal("10.50")), Leg(Decimal("0.1"), Side.SELL)],
        **more,
    )


FULL = order(
    day=date(2024, 3, 1), at=time(9, 30), level=Level.HIGH, raw=b"\x00\xff", tags={"a": {"name": "x", "weight": 1.5}},
    point=Point(1, 2), uuid=UUID(UUID_TEXT), names=frozenset({"n"}), pair=(3, "c"), numbers=(1.0, 2.5),
    parent=order(6), kind="old", ratio=2.0, extra={"free": [1]},
)  # fmt: skip


@pytest.mark.parametrize("message_type", ["json", "msgpack", "bson"])
@pytest.mark.parametrize("value", [order(), FULL])
def test_a_dataclass_comes_back_as_it_was_published(message_type: str, value: Order) -> None:
    codec = codec_for(message_type)
    assert decode_body(codec, codec.encode(value), Order) == value


def test_bodies_have_documented_forms() -> None:
    value = {"d": Decimal("1.10"), "b": b"\x00\xff", "s": {1}, "e": Side.SELL, "p": Point(1), "u": UUID(UUID_TEXT)}
    assert codec_for("json").encode(value) == (
        b'{"d":"1.10","b":"AP8=","s":[1],"e":"sell","p":{"x":1,"y":0},"u":"%b"}' % UUID_TEXT.encode()
    )
    assert codec_for("nvfix").encode({"yes": True, "no": None, "d": date(2024, 3, 1)}) == b"yes=Y\x01d=2024-03-01\x01"


@dataclass
class Quote:
    symbol: str
    price: float
    size: int | None = None
    firm: bool = False
    side: Side | None = None
    level: Level | None = None
    limit: Decimal | None = None


def test_values_of_text_formats_become_numbers() -> None:
    codec = codec_for("nvfix")
    quote = Quote("A", 1.5, 100, True, Side.SELL, Level.HIGH, Decimal("2.0"))
    assert decode_body(codec, codec.encode(quote), Quote) == quote
    assert decode_body(codec, codec.encode(Quote("A", 1.5)), Quote) == Quote("A", 1.5)
    with pytest.raises(DecodeError, match="price: expected a number, not str 'x'"):
        decode_body(codec, b"symbol=A\x01price=x\x01", Quote)
    with pytest.raises(DecodeError, match="firm: expected a boolean, not str 'maybe'"):
        decode_body(codec, b"symbol=A\x01price=1\x01firm=maybe\x01", Quote)
    with pytest.raises(DecodeError, match="price: expected a number"):
        decode_body(codec_for("json"), b'{"symbol":"A","price":"1"}', Quote)


def test_fix_tags_are_names_of_fields_and_keys_of_dictionaries() -> None:
    tags = TypedDict("tags", {"55": str, "38": int})
    assert decode_body(codec_for("fix"), b"55=A\x0138=5\x01", tags) == {"55": "A", "38": 5}
    assert decode_body(codec_for("fix"), b"38=5\x01", dict[int, int]) == {38: 5}
    assert decode_body(codec_for("fix"), b"38=5\x01", dict) == {38: "5"}
    with pytest.raises(TypeError, match="legs: a nvfix body is flat"):
        codec_for("nvfix").encode(order())


WRONG = [
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[{"price":"1"},{"price":"x"}]}', "legs[1].price",
     "expected a decimal number, not str 'x'"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[{"price":"1","side":"hold"}]}', "legs[0].side",
     "expected one of 'buy', 'sell', not str 'hold'"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":{}}', "legs", "expected an array, not an object"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z"}', "legs", "the field is missing"),
    ('{"id":"1","when":"2024-03-01T00:00:00Z","legs":[]}', "id", "expected an integer, not str '1'"),
    ('{"id":true,"when":"2024-03-01T00:00:00Z","legs":[]}', "id", "expected an integer, not bool True"),
    ('{"id":1,"when":"yesterday","legs":[]}', "when", "expected an ISO-8601 time with date, not str 'yesterday'"),
    ('{"id":1,"when":null,"legs":[]}', "when", "expected an ISO-8601 time with date, not null"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"tags":{"a":{"weight":1}}}', "tags.a.name",
     "the field is missing"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"parent":{"id":2}}', "parent.when", "the field is missing"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"pair":[1]}', "pair",
     "expected an array of 2 values, not of 1"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"pair":["x","y"]}', "pair[0]",
     "expected an integer, not str 'x'"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"point":[1,2,3]}', "point",
     "expected an array of 2 values, not of 3"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"kind":"other"}', "kind",
     "expected one of 'new', 'old', not str 'other'"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"raw":"%"}', "raw",
     "expected bytes, or Base64 text, not str '%'"),
    ('{"id":1,"when":"2024-03-01T00:00:00Z","legs":[],"names":[[]]}', "names[0]", "expected a text, not an array"),
    ("[1]", "", "expected an object, not an array"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "path", "problem"), WRONG)
def test_an_error_has_the_path_of_the_wrong_field(body: str, path: str, problem: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_body(codec_for("json"), body.encode(), Order)
    assert (caught.value.path, caught.value.problem) == (path, problem)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (f"{path}: {problem}" if path else problem)


def test_malformed_bodies_raise_value_error() -> None:
    with pytest.raises(ValueError, match=r"JSON|json|column"):
        decode_body(codec_for("json"), b"{", Order)


def test_types_without_a_model() -> None:
    assert convert([1, 2], list[int]) == [1, 2]
    assert convert([1], list) == [1]
    assert convert({"1": "a"}, dict[int, str]) == {1: "a"}
    assert convert(5.0, int) == 5
    assert type(convert(5, float)) is float
    assert convert(None, None) is None
    assert convert([1, "a"], Sequence[int | str]) == [1, "a"]
    assert convert("2024-03-01", datetime | str) == datetime(2024, 3, 1)
    assert convert("soon", datetime | str) == "soon"
    assert convert(1, Any) == 1
    assert convert({"x": 1}, Point) == Point(1)
    assert convert([1, 2], Point | None) == Point(1, 2)
    with pytest.raises(DecodeError, match=r"\[1\]: expected an integer, not float 2.5"):
        convert([1, 2.5], list[int])
    with pytest.raises(DecodeError, match=r"fits none of the types \(int: expected an integer.*Leg: price"):
        convert({}, int | Leg)
    with pytest.raises(DecodeError, match=r"^k: expected an integer"):
        convert({"k": 1}, dict[int, int])
    with pytest.raises(TypeError, match="cannot be decoded to range"):
        convert(1, range)
    with pytest.raises(TypeError, match="cannot be decoded to"):
        convert(1, "Order")


@dataclass
class Checked:
    low: int
    high: int = 10

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


def test_the_check_of_a_dataclass_is_an_error_with_a_path() -> None:
    with pytest.raises(DecodeError, match=r"^\[0\]: low 11 is above high 10"):
        convert([{"low": 11, "unknown": 1}], list[Checked])


class Opaque:
    pass


@pytest.mark.parametrize("message_type", ["json", "msgpack", "bson", "nvfix"])
def test_a_value_that_no_body_can_carry_is_named_by_its_path(message_type: str) -> None:
    flat = message_type == "nvfix"
    value: Any = {"extra": Opaque()} if flat else order(extra={"deep": [1, Opaque()]})
    path = "extra" if flat else r"extra\.deep\[1\]"
    with pytest.raises(TypeError, match=f"^{path}: a message body cannot carry an object of type Opaque"):
        codec_for(message_type).encode(value)


# msgspec and pydantic


def test_structs_of_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec")

    class Inner(msgspec.Struct):  # type: ignore[misc, name-defined]
        price: Decimal
        raw: bytes = b""

    class Outer(msgspec.Struct, rename="camel"):  # type: ignore[misc, call-arg, name-defined]
        order_id: int
        when: datetime
        inner: list[Inner]
        side: Side = Side.BUY

    value = Outer(1, datetime(2024, 3, 1, tzinfo=UTC), [Inner(Decimal("1.50"), b"\xff")])
    for name in ("json", "msgpack", "bson"):
        body = codec_for(name).encode({"all": [value]})
        assert decode_body(codec_for(name), body, dict[str, list[Outer]]) == {"all": [value]}
    assert b'"orderId":1' in codec_for("json").encode(value)
    with pytest.raises(DecodeError) as caught:
        convert([{"orderId": 1, "when": "2024-03-01T00:00:00Z", "inner": [{"price": []}]}], list[Outer])
    assert caught.value.path == "[0].inner[0].price"

    class Flat(msgspec.Struct):  # type: ignore[misc, name-defined]
        qty: int

    assert decode_body(codec_for("nvfix"), codec_for("nvfix").encode(Flat(5)), Flat) == Flat(5)


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Inner(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        price: Decimal
        raw: bytes = b""
        secret: pydantic.SecretStr | None = None  # type: ignore[name-defined]

    class Outer(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(strict=True, populate_by_name=True)
        order_id: int = pydantic.Field(alias="orderId")
        when: datetime
        inner: list[Inner]

    value = Outer(order_id=1, when=datetime(2024, 3, 1, tzinfo=UTC), inner=[Inner(price="1.50", raw=b"text")])
    body = codec_for("json").encode(value)
    assert body.startswith(b'{"orderId":1,')
    assert decode_body(codec_for("json"), body, Outer) == value
    inner = Inner(price=Decimal("2"), raw=b"\xff")
    assert decode_body(codec_for("bson"), codec_for("bson").encode(inner), Inner) == inner
    assert decode_body(codec_for("json"), codec_for("json").encode([Inner(price=1)]), list[Inner]) == [Inner(price=1)]
    with pytest.raises(DecodeError) as caught:
        decode_body(codec_for("json"), b'{"orderId":1,"when":"2024-03-01T00:00:00Z","inner":[{}]}', Outer)
    assert caught.value.path == "inner[0].price"
    with pytest.raises(DecodeError) as caught:
        convert({"list": [{"price": "x"}]}, dict[str, list[Inner]])
    assert caught.value.path == "list[0].price"
    with pytest.raises(DecodeError, match="JSON"):
        decode_body(codec_for("json"), b"{", Inner)


def test_models_of_all_kinds_contain_each_other() -> None:
    msgspec = pytest.importorskip("msgspec")
    pydantic = pytest.importorskip("pydantic")

    class Innermost(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        n: int

    class Middle(msgspec.Struct):  # type: ignore[misc, name-defined]
        innermost: Innermost
        leg: Leg

    outer = {"middle": Middle(Innermost(n=1), Leg(Decimal("1")))}
    for name in ("json", "msgpack"):
        body = codec_for(name).encode(outer)
        assert decode_body(codec_for(name), body, dict[str, Middle]) == outer
    with pytest.raises(DecodeError, match="middle"):
        convert({"middle": {"innermost": {"n": "x"}, "leg": {"price": 1}}}, dict[str, Middle])


def test_neither_package_is_needed_or_imported() -> None:
    code = (
        "import sys\nsys.modules['msgspec'] = sys.modules['pydantic'] = None\n"
        "from tests.unit.client.test_payload_models import *\n"
        "codec = codec_for('json')\nassert decode_body(codec, codec.encode(FULL), Order) == FULL\n"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
