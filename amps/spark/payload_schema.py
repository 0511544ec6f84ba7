"""The fields of payloads to read, with their types: Spark's DDL text, parsed without Spark.

    a long, b struct<c: string, d: decimal(10, 2)>, tags array<string> NOT NULL COMMENT 'free', `odd name` timestamp

Executors get plain tuples, which are small when pickled. `amps._core.columns.columns.FieldColumns` takes such tuples:

    (("a", "long"), ("b", ("struct", (("c", "string"), ("d", ("decimal", 10, 2))))), ("tags", ("array", "string")), ...)

The driver creates Spark's own types from the same tuples, so that each text is parsed in one way only. Every field is
nullable: a field that a message lacks is null, even with NOT NULL, as in Spark's file sources. Comments are ignored.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PayloadType = str | tuple[Any, ...]
PayloadFields = tuple[tuple[str, PayloadType], ...]

DEPTH_MAX = 100
_DECIMAL_DIGITS_MAX = 38

_TYPES = {
    "boolean": "boolean",
    "byte": "byte",
    "tinyint": "byte",
    "short": "short",
    "smallint": "short",
    "int": "int",
    "integer": "int",
    "long": "long",
    "bigint": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
}
_DECIMALS = frozenset(("decimal", "dec", "numeric"))

_TOKEN = re.compile(
    r"""\s*(?: (?P<quoted>`(?:[^`]|``)*`)
             | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
             | (?P<word>\w+)
             | (?P<sign>[<>(),:])
             | (?P<end>\Z) )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[_Token]:
        place = 0
        while True:
            found = _TOKEN.match(self._ddl, place)
            if found is None or found.lastgroup is None:
                begin = place + len(self._ddl[place:]) - len(self._ddl[place:].lstrip())
                raise self._error(f"{self._ddl[begin]!r} is no part of a schema", begin)
            yield _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
            if found.lastgroup == "end":
                return
            place = found.end()

    def _error(self, what: str, place: int) -> ValueError:
        return ValueError(f"{what}, at character {place + 1} of the schema {self._ddl!r}")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> bool:
        """Consume the next token if it is one of these words or signs; return whether it was."""
        token = self._next
        if token.kind in ("word", "sign") and token.text.lower() in texts:
            self._at += 1
            return True
        return False

    def _expect(self, *texts: str) -> None:
        if not self._take(*texts):
            raise self._error(f"{' or '.join(texts)} expected", self._next.place)

    def parse(self) -> PayloadFields:
        fields = self._fields(0)
        if self._next.kind != "end":
            raise self._error("a comma or the end expected", self._next.place)
        return fields

    def _fields(self, depth: int) -> PayloadFields:
        fields: dict[str, PayloadType] = {}
        while True:
            place = self._next.place
            name = self._name()
            if name in fields:
                raise self._error(f"the field {name} comes twice", place)
            self._take(":")
            fields[name] = self._type(depth)
            if self._take("not"):
                self._expect("null")
            if self._take("comment"):
                if self._next.kind != "text":
                    raise self._error("the text of a comment expected", self._next.place)
                self._at += 1
            if not self._take(","):
                return tuple(fields.items())

    def _name(self) -> str:
        token = self._next
        if token.kind not in ("word", "quoted"):
            raise self._error("the name of a field expected", token.place)
        self._at += 1
        return token.text if token.kind == "word" else token.text[1:-1].replace("``", "`")

    def _type(self, depth: int) -> PayloadType:
        token = self._next
        word = token.text.lower()
        if token.kind != "word":
            raise self._error("a type expected", token.place)
        if depth > DEPTH_MAX:
            raise self._error(f"types are nested deeper than {DEPTH_MAX} levels", token.place)
        self._at += 1
        if word in _DECIMALS:
            return self._decimal(token.place)
        if word == "array":
            self._expect("<")
            element = self._type(depth + 1)
            self._expect(">")
            return ("array", element)
        if word == "struct":
            self._expect("<")
            members: PayloadFields = () if self._next.text == ">" else self._fields(depth + 1)
            self._expect(">")
            return ("struct", members)
        if word not in _TYPES:
            raise self._error(f"{token.text} is no type that fields of payloads can have", token.place)
        return _TYPES[word]

    def _decimal(self, place: int) -> PayloadType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            if self._take(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise self._error(f"decimal({precision},{scale}) is no type", place)
        return ("decimal", precision, scale)

    def _number(self) -> int:
        token = self._next
        if not (token.text.isascii() and token.text.isdigit()):
            raise self._error("a number expected", token.place)
        self._at += 1
        return int(token.text)


def parse_ddl(ddl: str) -> PayloadFields:
    """Return the fields of a DDL text. Raises ValueError if it is invalid or has types that payloads cannot have."""
    return _Parser(ddl).parse()


def spark_type(fields: PayloadFields) -> Any:
    """Return the fields as a `pyspark.sql.types.StructType`, all nullable. Needs pyspark, but no session."""
    return _spark_type_of(("struct", fields))


def _spark_type_of(of: PayloadType) -> Any:
    from pyspark.sql import types

    match of:
        case ("decimal", precision, scale):
            return types.DecimalType(precision, scale)
        case ("array", element):
            return types.ArrayType(_spark_type_of(element))
        case ("struct", members):
            return types.StructType(
                [types.StructField(name, _spark_type_of(member)) for name, member in members]
            )
    makers: dict[PayloadType, type[Any]] = {
        "boolean": types.BooleanType,
        "byte": types.ByteType,
        "short": types.ShortType,
        "int": types.IntegerType,
        "long": types.LongType,
        "float": types.FloatType,
        "double": types.DoubleType,
        "string": types.StringType,
        "binary": types.BinaryType,
        "date": types.DateType,
        "timestamp": types.TimestampType,
    }
    return makers[of]()


def fields_of(struct: Any) -> PayloadFields:
    """Return the fields of a `StructType`; the inverse of `spark_type`. Raises ValueError for unsupported types."""
    return tuple((field.name, _type_of_spark(field.dataType)) for field in struct.fields)


def _type_of_spark(of: Any) -> PayloadType:
    from pyspark.sql import types

    if isinstance(of, types.StructType):
        return ("struct", fields_of(of))
    if isinstance(of, types.ArrayType):
        return ("array", _type_of_spark(of.elementType))
    if isinstance(of, types.DecimalType):
        return ("decimal", of.precision, of.scale)
    name = of.simpleString()
    if name not in _TYPES:
        raise ValueError(f"{name} is no type that fields of payloads can have")
    return _TYPES[name]


def ddl_of(fields: PayloadFields) -> str:
    """Return a DDL text of these fields, which Spark can read, too."""
    return ", ".join(f"`{name.replace('`', '``')}` {_ddl_of_type(of)}" for name, of in fields)


def _ddl_of_type(of: PayloadType) -> str:
    match of:
        case ("decimal", precision, scale):
            return f"decimal({precision},{scale})"
        case ("array", element):
            return f"array<{_ddl_of_type(element)}>"
        case ("struct", members):
            return f"struct<{ddl_of(members)}>"
    return str(of)
