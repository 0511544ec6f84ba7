"""Generated orders: some fifty fields each, in two levels, all records different.

The fields of the filter are at random places: the order of fields is drawn for each record, at both levels, and
so are all values. So neither caches nor branch prediction can anticipate a message. The generator is seeded, so every
run has the same records.

The filter has five predicates. Each holds for most records, and all together for about half. Every record has
all fields of the filter, with values of one type: the handling of missing fields is not compared here.
"""

import random
from collections.abc import Callable, Iterator

Scalar = str | int | float | bool | None
Fields = list[tuple[str, "Scalar | Fields"]]
Path = tuple[str, ...]

SEED = 20_020_401
SYMBOLS = 2000
"""Number of symbols; about every second record has one of the first half."""

STATUSES = ("new", "open", "partial", "held")
PRICE_LIMIT = 900.5
QUANTITY_LEAST, QUANTITY_MOST = 500, 9500
REGION = "south"
CURRENCY = "JPY"

_ALL_STATUSES = (*STATUSES, "filled")
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "SEK", "NOK", "DKK", "PLN", "CZK", CURRENCY)
_REGIONS = ("north", "east", "west", "center", "northeast", "northwest", "coast", "islands", "alps", REGION)
_WORDS = (
    *("limit", "order", "good", "until", "the", "close", "with", "discretion", "and", "minimum", "quantity"),
    *("worked", "by", "hand", "against", "volume", "over", "day", "Zürich", "Genève", "København", "said"),
    *('"now"', "path\\to\\desk", "first\nsecond", "line", "100%", "iceberg", "peg", "midpoint", "auction"),
    *("cross", "dark", "lit", "sweep", "route", "return", "hedge", "basket", "program"),
)
_TEXTS = ("client", "trader", "desk", "book", "strategy", "venue", "broker", "clearer", "source", "tag")
_INTEGERS = ("sequence", "filled", "remaining", "priority", "retries", "version", "batch", "legs", "lots")
_DECIMALS = ("average", "stop", "fee", "tax", "commission", "delta", "gamma", "yield", "spread")
_FLAGS = ("hidden", "post_only", "reduce_only", "is_hedge", "algorithmic")
_NOTE_CHARACTERS = range(10, 150)


def filter_text(path: Callable[[Path], str]) -> str:
    """The filter of five predicates; `path` returns the name of a field in a filter."""
    statuses = ", ".join(f"'{status}'" for status in STATUSES)
    return (
        f"{path(('status',))} IN ({statuses}) AND {path(('price',))} < {PRICE_LIMIT} "
        f"AND {path(('quantity',))} BETWEEN {QUANTITY_LEAST} AND {QUANTITY_MOST} "
        f"AND {path(('account', 'region'))} != '{REGION}' AND {path(('currency',))} != '{CURRENCY}'"
    )


def is_match(status: str, price: float, quantity: int, region: str, currency: str) -> bool:
    """The result of the filter."""
    return (
        status in STATUSES
        and price < PRICE_LIMIT
        and QUANTITY_LEAST <= quantity <= QUANTITY_MOST
        and region != REGION
        and currency != CURRENCY
    )


def symbol(number: int) -> str:
    return f"S{number:04d}"


class Order:
    """One record: its fields, the result of the filter, and the number of its symbol."""

    def __init__(self, number: int, draw: random.Random) -> None:
        status = draw.choice(_ALL_STATUSES)
        price = round(draw.uniform(1, 1000), 2)
        quantity = draw.randrange(100, 10_000)
        region, currency = draw.choice(_REGIONS), draw.choice(_CURRENCIES)
        self.matches = is_match(status, price, quantity, region, currency)
        self.symbol_number = draw.randrange(SYMBOLS)
        account: Fields = [
            ("region", region),
            ("id", draw.randrange(10**9)),
            ("name", _some_words(draw, 12)),
            ("tier", draw.choice(("gold", "silver", "none"))),
            ("margin", round(draw.uniform(0, 1), 4)),
        ]
        instrument: Fields = [
            ("isin", f"XS{draw.randrange(10**10):010d}"),
            ("exchange", draw.choice(("XETR", "XLON", "XNAS", "XSWX"))),
            ("lot_size", draw.choice((1, 10, 100))),
            ("tick_size", draw.choice((0.01, 0.05, 0.1))),
            ("maturity", None),
        ]
        draw.shuffle(account)
        draw.shuffle(instrument)
        fields: Fields = [
            ("id", number),
            ("order_id", f"{draw.getrandbits(64):016x}"),
            ("symbol", symbol(self.symbol_number)),
            ("status", status),
            ("price", price),
            ("quantity", quantity),
            ("currency", currency),
            ("account", account),
            ("instrument", instrument),
            ("parent_id", None),
            ("created_ns", 1_700_000_000_000_000_000 + draw.randrange(10**15)),
            ("updated_at", f"2026-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}T12:00:00Z"),
            ("note", _some_words(draw, draw.choice(_NOTE_CHARACTERS))),
        ]
        fields += [(name, draw.choice(_WORDS[:18])) for name in _TEXTS]
        fields += [(name, draw.randrange(10 ** draw.randrange(1, 8))) for name in _INTEGERS]
        fields += [(name, round(draw.uniform(-100, 100), 3)) for name in _DECIMALS]
        fields += [(name, draw.random() < 0.5) for name in _FLAGS]
        draw.shuffle(fields)
        self.fields = fields


def _some_words(draw: random.Random, characters: int) -> str:
    text = " ".join(draw.choices(_WORDS, k=characters // 4 + 1))
    return text[:characters].rstrip()


def orders(count: int) -> Iterator[Order]:
    """The first `count` records."""
    draw = random.Random(SEED)
    for number in range(count):
        yield Order(number, draw)


def leaves(fields: Fields, above: Path = ()) -> Iterator[tuple[Path, Scalar]]:
    """Every scalar with its path."""
    for name, value in fields:
        if isinstance(value, list):
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def as_dict(fields: Fields) -> dict[str, object]:
    return {name: as_dict(value) if isinstance(value, list) else value for name, value in fields}
