"""The index of topic expressions: few expressions are tried."""

from dataclasses import dataclass
from typing import Any

import pcre2

from amps.server.transport.patterns import PatternIndex


@dataclass(eq=False)
class FakeSubscription:
    """The fields of a subscription that the index reads."""

    topic: str


class Tried:
    """An index with subscriptions that count how often their expressions are tried."""

    def __init__(self) -> None:
        self.index = PatternIndex()
        self.count = 0
        self.generation = 1

    def subscribe(self, expression: str) -> Any:
        pattern = pcre2.compile(expression)

        def matches(name: str) -> bool:
            self.count += 1
            return pattern.search(name) is not None

        subscription: Any = FakeSubscription(expression)
        self.generation += 1
        self.index.add(subscription, matches, self.generation)
        return subscription

    def unsubscribe(self, subscription: Any) -> None:
        self.generation += 1
        self.index.remove(subscription, self.generation)

    def matching(self, name: str, since: int = 0) -> list[str]:
        return sorted(pattern.text for pattern in self.index.matching(name, since))


def test_patterns_thousands_of_expressions_and_topics_are_not_multiplied() -> None:
    """Trying each of 5,000 expressions with each of 5,000 topics once took a worker 49 s."""
    tried = Tried()
    for number in range(1000):
        kinds = [f"^feed/{number:05d}/.*", f"user.{number:05d}.(in|out)$", f"{number:05d}x[a-z]+$"]
        tried.subscribe(kinds[number % 3])
    for number in range(0, 1000, 3):
        assert tried.matching(f"feed/{number:05d}/a") == [f"^feed/{number:05d}/.*"]
        assert (
            tried.matching(f"user/{number + 1:05d}/in")
            == [f"user.{number + 1:05d}.(in|out)$"][: number < 998]
        )
        assert tried.matching(f"nobody/{number:05d}") == []
    assert tried.count < 3 * 334 * 5


def test_patterns_equal_expressions_are_tried_once() -> None:
    tried = Tried()
    subscriptions = [tried.subscribe("^a.*z$") for _ in range(100)]
    (found,) = tried.index.matching("a/z", 0)
    assert list(found.members) == subscriptions
    assert tried.count == 1


def test_patterns_only_new_ones_are_tried_again() -> None:
    tried = Tried()
    for number in range(300):
        tried.subscribe(f"[a-z]{number}")
    since = tried.generation
    tried.count = 0
    tried.subscribe("[a-z]1$")
    assert tried.matching("x1", since) == ["[a-z]1$"]
    assert tried.matching("x1", tried.generation) == []
    assert tried.count == 1
    # Many new subscriptions are looked up by the texts that their expressions require.
    for number in range(300):
        tried.subscribe(f"[b-y]{number}$")
    assert tried.matching("x1", since) == ["[a-z]1$", "[b-y]1$"]
    assert tried.count < 10


def test_patterns_are_removed_with_their_last_subscription() -> None:
    tried = Tried()
    first, second, other = tried.subscribe("a."), tried.subscribe("a."), tried.subscribe("b.")
    tried.unsubscribe(first)
    tried.unsubscribe(first)
    assert tried.matching("ab.") == ["a.", "b."]
    tried.unsubscribe(second)
    assert tried.matching("ab.") == ["b."]
    tried.unsubscribe(other)
    assert not tried.index
    since = tried.generation
    tried.subscribe("a.")
    assert tried.matching("ab.", since) == ["a."]
