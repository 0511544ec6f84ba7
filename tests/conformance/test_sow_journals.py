"""SOW topics while journals end and begin (sow.md §4, §14): the value before may be in any journal."""

import pytest

from amps.client import Client
from tests.support.server import StartServer
from tests.support.sow import options, topic_xml

ENRICHED = "<Field>COALESCE(/n OF PREVIOUS, 0) + 1 AS /n</Field>"
TEXT_BYTES = 600_000
DELTAS = 120
"""Several journals of 10 MB."""


@pytest.mark.parametrize("enriched", [False, True])
def test_sow_23_the_value_before_is_found_in_a_journal_that_began_in_the_same_turn(
    start_server: StartServer, enriched: bool
) -> None:
    """sow.md §25, 23; §15. Small deltas to large records: the core takes many of them in one turn, in which it writes a
    journal to its end, begins the next one, and needs values that are in it already.
    """
    elements = {"Enrichment": ENRICHED} if enriched else {}
    server = start_server(**options(topic_xml("orders", "/id", **elements), logged=["orders"]))
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        text = "x" * TEXT_BYTES
        for key in (1, 2):
            client.publish("orders", {"id": key, "text": text})
        for number in range(DELTAS):
            client.delta_publish("orders", {"id": number % 2 + 1, f"f{number % 10}": number})
        client.publish_flush()
        records = [message.json() for message in client.sow("orders", order_by="/id")]
    for key, record in zip((1, 2), records, strict=True):
        changed = [number for number in range(DELTAS) if number % 2 + 1 == key]
        last = {f"f{number % 10}": number for number in changed[-5:]}
        computed = {"n": len(changed) + 1} if enriched else {}
        assert record == {"id": key, "text": text, **last, **computed}
