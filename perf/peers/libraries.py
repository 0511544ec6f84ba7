"""Python libraries that select JSON messages: a parser and an expression, or a filter language.

Each decides on bytes in memory, message by message, as they would come from a socket. None frames or delivers anything.
Values are read by subscript: every message has all fields.
"""

import importlib
import importlib.metadata
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from perf.orders.corpus import Corpus
from perf.orders.records import CURRENCY, PRICE_LIMIT, QUANTITY_LEAST, QUANTITY_MOST, REGION, STATUSES
from perf.peers.process import ProcessPeer, Work
from perf.pump import PeerError

Predicate = Callable[[bytes], object]


class Matching(Work):
    """A predicate, and the messages that it decides on."""

    def __init__(self, name: str, predicate: Predicate, corpus: Corpus, count: int | None) -> None:
        self._name = name
        self._predicate = predicate
        self._messages = corpus.messages("json", count)
        self.count = len(self._messages)

    def run(self, first: int, end: int) -> None:
        predicate = self._predicate
        for message in self._messages[first:end]:
            predicate(message)

    def verify(self, corpus: Corpus) -> None:
        for number, message in enumerate(self._messages):
            if self._predicate(message) is not bool(corpus.matching[number]):
                raise PeerError(
                    f"{self._name} returns {self._predicate(message)!r} for a message for which this server returns "
                    f"{bool(corpus.matching[number])}: {message!r}"
                )


class LibraryPeer(ProcessPeer):
    """One library, used in its fastest way."""

    distribution: ClassVar[str]
    """Name of the library on PyPI."""
    messages: ClassVar[int | None] = None
    """Number of messages it works on; None = all. Slow libraries get fewer messages and work on them several times."""

    def version(self) -> str:
        try:
            return f"{self.distribution} {importlib.metadata.version(self.distribution)}"
        except importlib.metadata.PackageNotFoundError:
            raise PeerError(f"{self.distribution} is not installed: pip install '.[perf]'") from None

    def prepare(self, corpus: Corpus) -> Work:
        return Matching(self.name, self.predicate(), corpus, self.messages)

    @abstractmethod
    def predicate(self) -> Predicate:
        """A function that returns True for a matching message and False for others. Called in the measured process."""


def by_subscripts(parse: Callable[[bytes], Any]) -> Predicate:
    """The filter in Python, for a parser whose result has members by subscript."""

    def matches(message: bytes) -> bool:
        order = parse(message)
        return (
            order["status"] in STATUSES
            and order["price"] < PRICE_LIMIT
            and QUANTITY_LEAST <= order["quantity"] <= QUANTITY_MOST
            and order["account"]["region"] != REGION
            and order["currency"] != CURRENCY
        )

    return matches


class Orjson(LibraryPeer):
    name = "orjson"
    title = "orjson.loads + Python expression"
    distribution = "orjson"

    def predicate(self) -> Predicate:
        return by_subscripts(importlib.import_module("orjson").loads)


class Simdjson(LibraryPeer):
    """Values become Python objects only when they are read."""

    name = "simdjson"
    title = "pysimdjson, lazy access + Python expression"
    distribution = "pysimdjson"

    def predicate(self) -> Predicate:
        return by_subscripts(importlib.import_module("simdjson").Parser().parse)


class Msgspec(LibraryPeer):
    """The decoder skips fields that are in no Struct."""

    name = "msgspec"
    title = "msgspec, Struct of five fields + Python expression"
    distribution = "msgspec"

    def predicate(self) -> Predicate:
        msgspec = importlib.import_module("msgspec")
        account = msgspec.defstruct("Account", [("region", str)], gc=False)
        fields = [
            ("status", str),
            ("price", float),
            ("quantity", int),
            ("account", account),
            ("currency", str),
        ]
        decode = msgspec.json.Decoder(msgspec.defstruct("Order", fields, gc=False)).decode

        def matches(message: bytes) -> bool:
            order = decode(message)
            return (
                order.status in STATUSES
                and order.price < PRICE_LIMIT
                and QUANTITY_LEAST <= order.quantity <= QUANTITY_MOST
                and order.account.region != REGION
                and order.currency != CURRENCY
            )

        return matches


CEL_EXPRESSION = (
    f"status in {list(STATUSES)} && price < {PRICE_LIMIT} && quantity >= {QUANTITY_LEAST} "
    f"&& quantity <= {QUANTITY_MOST} && account.region != '{REGION}' && currency != '{CURRENCY}'"
)
CEL_VARIABLES = ("status", "price", "quantity", "account", "currency")
"""The fields that are converted to CEL values. The conversion takes most of the time."""


class CelRust(LibraryPeer):
    name = "cel-rust"
    title = "CEL: common-expression-language (Rust) on orjson.loads"
    distribution = "common-expression-language"
    messages = 20_000

    def predicate(self) -> Predicate:
        loads = importlib.import_module("orjson").loads
        execute = importlib.import_module("cel").compile(CEL_EXPRESSION).execute

        def matches(message: bytes) -> object:
            order = loads(message)
            return execute({name: order[name] for name in CEL_VARIABLES})

        return matches


class CelPython(LibraryPeer):
    name = "cel-python"
    title = "CEL: cel-python on orjson.loads"
    distribution = "cel-python"
    messages = 1_000

    def predicate(self) -> Predicate:
        loads = importlib.import_module("orjson").loads
        celpy = importlib.import_module("celpy")
        environment = celpy.Environment()
        evaluate = environment.program(environment.compile(CEL_EXPRESSION)).evaluate
        as_cel = importlib.import_module("celpy.adapter").json_to_cel

        def matches(message: bytes) -> bool:
            order = loads(message)
            return bool(evaluate({name: as_cel(order[name]) for name in CEL_VARIABLES}))

        return matches


class Jq(LibraryPeer):
    name = "jq"
    title = "jq"
    distribution = "jq"
    messages = 10_000

    def predicate(self) -> Predicate:
        statuses = " or ".join(f'.status == "{status}"' for status in STATUSES)
        program: Any = importlib.import_module("jq").compile(
            f"({statuses}) and .price < {PRICE_LIMIT} and .quantity >= {QUANTITY_LEAST} "
            f'and .quantity <= {QUANTITY_MOST} and .account.region != "{REGION}" and .currency != "{CURRENCY}"'
        )
        return lambda message: program.input_text(message.decode()).first()


class RuleEngine(LibraryPeer):
    name = "rule-engine"
    title = "rule-engine on orjson.loads"
    distribution = "rule-engine"
    messages = 10_000

    def predicate(self) -> Predicate:
        loads = importlib.import_module("orjson").loads
        rule = importlib.import_module("rule_engine").Rule(
            f"status in {list(STATUSES)} and price < {PRICE_LIMIT} and quantity >= {QUANTITY_LEAST} "
            f"and quantity <= {QUANTITY_MOST} and account.region != '{REGION}' and currency != '{CURRENCY}'"
        )
        return lambda message: rule.matches(loads(message))


LIBRARIES = (Orjson(), Simdjson(), Msgspec(), CelRust(), CelPython(), Jq(), RuleEngine())
