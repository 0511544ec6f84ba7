"""The guide to replays: its programs read a day that is published before."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from amps.client import Client
from tests.support.documents import GUIDE_TO_REPLAY, blocks
from tests.support.programs import Programs, programs
from tests.support.server import ServerProcess, StartServer

TRADES = 30


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    """A server with quotes and trades of one day."""
    server = start_module_server(log_topics=("^quotes$", "^trades$"))
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        for number in range(TRADES):
            client.publish("quotes", {"symbol": "ACME", "price": 10.0})
            symbol = "ACME" if number % 3 else "OTHER"
            client.publish("trades", {"symbol": symbol, "price": 9.5 if number % 2 else 10.5})
            if number == TRADES // 2:
                client.flush()
                time.sleep(0.3)
        client.flush()
    return server


@pytest.fixture
def guide(server: ServerProcess, tmp_path: Path) -> Iterator[Programs]:
    with programs(GUIDE_TO_REPLAY, tmp_path, server.port()) as guide:
        # The day of the guide is the time from yesterday until now, which is over.
        begin = f"{datetime.now(UTC) - timedelta(days=1):%Y%m%dT%H%M%S}"
        end = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        for text in ("[2026-11-24:2026-11-25)", "[2026-11-24T08:00:2026-11-24T17:00)"):
            guide.replaced[text] = f"[{begin}:{end})"
        yield guide


def test_a_day_becomes_a_table(guide: Programs) -> None:
    """client.md §19.4: with the columns of the headers first."""
    pytest.importorskip("pyarrow")
    assert guide.run("to_arrow") == "20 trades ['timestamp', 'bookmark', 'symbol', 'price']\n"


def test_a_day_in_parts(guide: Programs) -> None:
    """client.md §19.4: several parts, the last of them empty."""
    pytest.importorskip("pandas")
    guide.replaced["100_000"] = "7"
    assert guide.run("to_pandas") == "30 trades, the highest at 10.5\n"


def test_a_day_at_its_own_pace(guide: Programs) -> None:
    """transaction_log.md §8: no message is missing, each has its time."""
    lines = guide.run("60X").splitlines()
    assert len(lines) == TRADES
    assert [line.partition(" ")[0] for line in lines] == sorted(line.partition(" ")[0] for line in lines)
    assert lines[0].endswith('{"symbol":"OTHER","price":10.5}')


def test_a_backtest_is_deterministic(guide: Programs) -> None:
    """transaction_log.md §6: one subscription has one order over its topics."""
    first, second = guide.run("Strategy").splitlines()
    assert first == second
    assert first.startswith("15 orders ")
    assert guide.run("Strategy").splitlines() == [first, second]


def test_every_program_of_the_guide_is_run() -> None:
    assert len(blocks(GUIDE_TO_REPLAY)) == 4
