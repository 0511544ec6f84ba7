"""The Spark scenario: reads find the data made, wrong answers are no results, and missing parts are reported."""

import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from perf import report
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.peers.spark_data import FlightData, messages
from perf.peers.spark_reads import FIELD_TYPES, Facts, JournalPart, needed_versions
from perf.peers.spark_session import Answer, Query
from perf.pump import PeerError
from perf.run import run_scenario
from perf.scenarios import chosen_peers, chosen_scenarios
from perf.scenarios.spark_read import SparkReadScenario

RECORDS = 700
MESSAGES = 2000


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Invented records instead of the real ones; one in 350 is of a rare airline."""
    path = tmp_path / "flights.csv.zip"
    rows = [
        f"{'OO' if number % 350 == 7 else ('UA', 'AA')[number % 2]},N{number % 90},EWR,IAH,"
        f"{'NA' if number % 9 == 0 else number % 40 - 12},{number % 31 - 8},{number * 7 % 2500}"
        for number in range(RECORDS)
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "flights.csv",
            "\n".join(["carrier,tailnum,origin,dest,dep_delay,arr_delay,distance", *rows]) + "\n",
        )
    monkeypatch.setattr("amps.cli.demo.flights.data_file", lambda: path)
    return path


def test_messages_repeat_the_records_under_numbers_of_their_own(flights: Path) -> None:
    made = list(messages(RECORDS + 10))
    assert [body.split(b",")[0] for _, body in made] == [b'{"id":%d' % n for n in range(RECORDS + 10)]
    assert made[7][0] == b"flights/OO"
    assert made[RECORDS + 7][1].split(b",")[1:] == made[7][1].split(b",")[1:]


@pytest.mark.long
@pytest.mark.timeout(600)  # a Java process has to start
def test_every_read_finds_the_published_messages(flights: Path, tmp_path: Path) -> None:
    """Journals of a real server, JSON and Parquet give the same answers; parts are read partially."""
    try:
        needed_versions()
    except PeerError as error:
        pytest.skip(str(error))
    scenario = chosen_scenarios("spark-read")[0]
    peers = [peer for peer in scenario.peers if peer.cores == 1]
    result = run_scenario(
        scenario, peers, Settings(messages=MESSAGES, repetitions=1), tmp_path / "data", lambda line: None
    )
    found = {peer.peer.name: peer.runs[0] for peer in result.peers}
    assert found["amps-fields-1"].messages == found["spark-json-1"].messages == MESSAGES
    assert found["amps-quarter-1"].messages == MESSAGES // 4
    assert found["amps-topic-1"].messages == len([n for n in range(MESSAGES) if n % RECORDS % 350 == 7])
    assert found["amps-bookmarks-1"].messages == MESSAGES // 4
    text = report.markdown([result])
    assert "| journals, 8 fields |" in text
    assert "| 500 |" in text
    assert not list((tmp_path / "data").iterdir())


class Session:
    """A substitute for Spark with given answers."""

    def __init__(self, *rows: tuple[int, ...]) -> None:
        self._rows = list(rows)

    def call(self, function: Any, query: Query) -> Answer:
        return Answer(self._rows.pop(0), 2.0, CpuTime({}))


def prepared(tmp_path: Path, *rows: tuple[int, ...]) -> SparkReadScenario:
    scenario = SparkReadScenario()
    scenario.data = FlightData(tmp_path, 100)
    scenario.facts = Facts("flights/OO", 3, ("a", "b"), ("c", "d"), 25, 25, 1000)
    scenario.payload_bytes = 30_000
    scenario.report = tmp_path
    scenario.answers = {}
    scenario.sessions = dict.fromkeys((1, 2), Session(*rows))  # type: ignore[arg-type]
    return scenario


def named(name: str) -> Any:
    return next(peer for peer in SparkReadScenario.peers if peer.name == name)


def test_a_read_that_misses_messages_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="spark-json-1 has found 99 messages instead of 100"):
        prepared(tmp_path, (99, 0, 0)).measure(named("spark-json-1"), Settings(), tmp_path)
    with pytest.raises(PeerError, match="amps-topic-1 has found 100 messages instead of 3"):
        prepared(tmp_path, (100, 0, 0)).measure(named("amps-topic-1"), Settings(), tmp_path)


def test_a_read_with_another_answer_has_no_result(tmp_path: Path) -> None:
    scenario = prepared(tmp_path, (100, 7, 8), (100, 7, 8), (100, 7, 9))
    assert scenario.measure(named("amps-fields-1"), Settings(), tmp_path).values["messages_per_s"] == 50
    scenario.measure(named("spark-json-2"), Settings(), tmp_path)
    with pytest.raises(PeerError, match=r"returns \(100, 7, 9\), another read \(100, 7, 8\)"):
        scenario.measure(named("amps-columns-1"), Settings(), tmp_path)


def test_a_part_reports_the_bytes_it_has_read(tmp_path: Path) -> None:
    (tmp_path / "0000000001.x.json").write_text('{"bytes_read": 20}')
    scenario = prepared(tmp_path, (3, 0, 0))
    assert scenario.measure(named("amps-topic-1"), Settings(), tmp_path).values["read_share"] == 0.02
    assert not list(tmp_path.iterdir())


def test_options_choose_the_parts(tmp_path: Path) -> None:
    scenario = prepared(tmp_path)
    wanted = {
        "topic": {"topic": "flights/OO"},
        "time": {"from": "a", "to": "b"},
        "bookmarks": {"from": "c", "to": "d"},
    }
    for kind, options in wanted.items():
        query = JournalPart("amps-part", "", kind).query(scenario.data, scenario.facts, tmp_path)
        assert dict(query.options) == {**options, "report": str(tmp_path)}
        assert all(f"{name} {of}" in (query.schema or "") for name, of in FIELD_TYPES.items())


def results(tmp_path: Path, **seconds: float) -> list[PeerResult]:
    """The results by name of peer, with _ for -."""
    made = []
    for name, elapsed_s in seconds.items():
        peer = named(name.replace("_", "-"))
        rows = peer.rows(FlightData(tmp_path, 100), Facts("", 3, ("", ""), ("", ""), 25, 25, 1000))
        values = {"messages_per_s": rows / elapsed_s, "elapsed_s": elapsed_s, "read_share": 0.25}
        made.append(PeerResult(peer, "", [Measurement(values, rows, elapsed_s, CpuTime({}))]))
    return made


def test_the_tables_compare_reads_with_their_counterparts(tmp_path: Path) -> None:
    lines = prepared(tmp_path).table(
        Settings(repetitions=1),
        results(
            tmp_path,
            amps_fields_1=2.0,
            spark_json_1=8.0,
            amps_payloads_1=1.0,
            spark_parquet_1=0.5,
            amps_fields_2=1.0,
            spark_json_2=5.0,
            amps_quarter_1=0.5,
            amps_time_1=0.5,
        ),
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert rows[1:5] == [
        ["---", "---:", "---:", "---:", "---:"],
        ["journals, 8 fields", "50", "", "100", ""],
        ["lines of JSON by Spark's reader, 8 fields", "12", "4.00×", "20", "5.00×"],
        ["journals, payloads", "100", "", "", ""],
    ]
    assert rows[5][2] == "0.50×"
    assert ["25", "0.50", "20000.00"] in rows
    assert ["options `from` and `to`: times", "25", "25.00%", "0.50", "25.00%"] in rows
    assert lines[0].startswith("**spark-read** (100 flight records, 300 bytes of JSON each")


def test_some_peers_alone_have_a_table(tmp_path: Path) -> None:
    assert len(prepared(tmp_path).table(Settings(), results(tmp_path, spark_json_1=8.0))) == 5


def test_too_few_messages_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(PeerError, match="at least 1,000 messages"),
        SparkReadScenario().prepared([], Settings(messages=10), tmp_path),
    ):
        pass


def test_missing_parts_are_named_in_a_sentence(flights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "amps.spark", raising=False)
        patch.setattr(
            importlib.util,
            "find_spec",
            lambda name, package=None: None if name == "pyspark" else find(name, package),
        )
        with pytest.raises(PeerError, match="needs pyspark, which is not installed: pip install"):
            needed_versions()
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")
    with monkeypatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("PATH", "/nowhere")
        with pytest.raises(PeerError, match="Spark needs Java 17 or newer, and there is none on the PATH"):
            needed_versions()


def test_peers_are_chosen_by_family() -> None:
    scenarios = chosen_scenarios("spark")
    assert [scenario.name for scenario in scenarios] == ["spark-read"]
    (chosen,) = chosen_peers(scenarios, ["spark-json", "amps-payloads"])
    assert [peer.name for peer in chosen] == [
        "spark-json-1",
        "amps-payloads-1",
        "spark-json-2",
        "amps-payloads-2",
    ]
