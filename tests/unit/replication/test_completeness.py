"""Word between instances that all of a log is there (replication.md 25.94)."""

import dataclasses

import pytest

from amps.server.replication.completeness import STATEMENT_INTERVAL_S, Statements, partners
from amps.server.replication.hello import Identity
from amps.server.replication.instance_config import Destination, InstanceConfig

OWN = Identity("M", "G", "uuid-m", "e", "r")


def peer(name: str, group: str = "G") -> Identity:
    return dataclasses.replace(OWN, name=name, group=group, uuid=f"uuid-{name}")


def config(name: str, *destinations: Destination) -> InstanceConfig:
    return InstanceConfig(name, "G", (), (), (), destinations)


def to(name: str | None, group: str | None = None) -> Destination:
    return Destination(name, group, None, ())


def test_nothing_is_told_before_the_whole_log_of_a_moment_was_sent() -> None:
    """25.94: also what was not durable at that moment, or new since, and waits for room in the window."""
    statements = Statements(0.0)
    assert statements.due(written=100, sent=90, now_s=10.0) is None
    assert statements.due(written=200, sent=99, now_s=70.0) is None
    assert statements.due(written=300, sent=100, now_s=71.0) == 61.0
    assert statements.due(written=300, sent=300, now_s=71.0) is None, "it is time again later"
    assert statements.due(written=300, sent=300, now_s=71.0 + STATEMENT_INTERVAL_S) == 0


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (None, ["B"]),
        (config("B"), []),
        (config("B", to("C")), []),
        (config("B", to("C"), to("M")), ["B"]),
        (config("B", to(None, "G")), ["B"]),
        (config("B", to("M", "H")), []),
    ],
)
def test_a_partner_is_a_destination_that_replicates_to_this_instance(
    there: InstanceConfig | None, wanted: list[str]
) -> None:
    """25.94: or whose configuration is not known. The log of another one will never be here."""
    known = {} if there is None else {"uuid-B": there}
    assert partners([peer("B")], known, [], OWN) == wanted
    assert partners([peer("B")], known, ["A"], OWN) == ["A", *wanted]
    assert partners([peer("B"), None], known, ["A"], OWN) is None
