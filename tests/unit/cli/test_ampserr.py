"""`ampserr` explains every message of the event log, and every reason of a failure."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import amps.server
from amps.cli.explain.advice import NOTHING
from amps.cli.explain.catalogue import EVENTS, everything, find, near
from amps.cli.explain.command import main
from amps.cli.explain.log_events import LOG_EVENTS
from amps.cli.explain.reasons import REASONS
from amps.cli.explain.server_events import SERVER_EVENTS
from amps.client.errors import _BY_REASON
from amps.server.eventlog.catalogue import CATALOGUE
from tests.unit.cli.running import TIMEOUT_S, environment

ONLY_OTHER_SERVERS = frozenset(
    ("bad order by", "invalid query id", "invalid sow key", "no data", "no filter", "no sow keys", "sow store failed",
     "subid in use", "unknown option")
)  # fmt: skip
"""Reasons that the client understands and this server never sends."""


def run(*words: str) -> "click.testing.Result":
    return CliRunner().invoke(main, list(words))


def reasons_in_the_server() -> set[str]:
    """The texts that the server gives as reasons: first arguments of failures, dismissals and ends of connections."""
    found = set()
    for path in Path(amps.server.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            text = node.args[0]
            if name in ("CommandFailure", "dismiss", "close") and isinstance(text, ast.Constant) and text.value:
                found.add(str(text.value))
    return found


def test_every_id_has_an_explanation() -> None:
    assert EVENTS.keys() == CATALOGUE.keys()
    assert not SERVER_EVENTS.keys() & LOG_EVENTS.keys()


def test_every_reason_has_an_explanation() -> None:
    sent = reasons_in_the_server()
    assert {"bad filter", "heartbeat", "unknown command", "journal damaged"} <= sent
    assert sent - REASONS.keys() == set()
    assert _BY_REASON.keys() - REASONS.keys() == ONLY_OTHER_SERVERS


def test_explanations_are_sentences() -> None:
    for each in everything():
        for text in each.advice:
            assert text.endswith("."), (each.name, text)
            assert text[0].isupper(), (each.name, text)
        if each.kind in ("error", "critical"):
            assert each.advice.remedy != NOTHING, each.name


def test_operations_11_an_id_is_explained_in_the_documented_form() -> None:
    """operations.md §11, §13 70: `ampserr 00-0015`."""
    done = run("00-0015")
    assert done.exit_code == 0
    assert done.output == (
        "AMPS Message 00-0015 [level = info]\n"
        "    DESCRIPTION:\n"
        "        AMPS initialization completed (<seconds> seconds).\n"
        "        The server is ready and accepts clients.\n"
        "    ACTION:\n"
        "        No recommended action available.\n"
        "\n"
        "Found 1 error matching '00-0015'.\n"
    )


def test_operations_11_ids_are_found_by_regular_expressions() -> None:
    """operations.md §11: `00-` and `.`; exit status 1 without a match."""
    ids = [line.split()[2] for line in run("00-").output.splitlines() if line.startswith("AMPS Message")]
    assert ids == sorted(name for name in CATALOGUE if name.startswith("00-"))
    assert run("00-").output.endswith(f"Found {len(ids)} errors matching '00-'.\n")
    assert f"Found {len(CATALOGUE)} errors matching '.'." in run(".").output
    assert run("99-").exit_code == 1
    assert run("(").exit_code == 1


def test_a_reason_is_explained_with_cause_and_remedy() -> None:
    lines = run("slow", "client").output.splitlines()
    assert lines[0] == "AMPS Reason slow client [reason of an ended connection]"
    assert [line for line in lines if line[:4] == "    " != line[4:8]] == ["    DESCRIPTION:", "    ACTION:"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("1d-0008",), "1D-0008"),
        (("1D0008",), "1D-0008"),
        (("2026-11-25T17:19:37.4619907+00:00 [4] warning: 1D-0008 the next journal was not ready",), "1D-0008"),
        (("bad", "filter"), "bad filter"),
        (("Bad Filter",), "bad filter"),
        (("bad filter: the expression ends",), "bad filter"),
        (("subscribe failed: bad filter: at 3",), "bad filter"),
        (("not supported yet: pagination",), "not supported yet"),
    ],
)
def test_ids_records_and_reasons_are_found(words: tuple[str, ...], name: str) -> None:
    done = run(*words, "-output", "json")
    assert (done.exit_code, [row["name"] for row in json.loads(done.output)]) == (0, [name])


def test_several_are_explained() -> None:
    output = run("07-0013", "slow client").output
    assert output.index("AMPS Message 07-0013") < output.index("AMPS Reason slow client")
    done = run("07-0013", "07-9999")
    assert (done.exit_code, "07-9999" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("bad fliter", "bad filter"), ("07-0012", "07-0013"), ("O7-0013", "07-0013"), ("heartbeat manager", "07-0042"),
     ("name in used", "name in use")],
)  # fmt: skip
def test_near_matches_are_suggested(text: str, meant: str) -> None:
    assert meant in near(text)
    done = run(*text.split())
    assert (done.exit_code, meant in done.stderr, done.stdout) == (1, True, "")


def test_without_near_matches_the_list_is_named() -> None:
    assert "'ampserr --list' lists all" in run("zzzzzz").stderr


def test_the_list_is_complete() -> None:
    lines = run("--list").output.splitlines()
    assert [line.split("  ")[0] for line in lines[: len(CATALOGUE)]] == sorted(CATALOGUE)
    assert [line.partition(":")[0] for line in lines[len(CATALOGUE) :]] == sorted(REASONS)
    assert len(json.loads(run("--list", "-output", "json").output)) == len(lines)


@pytest.mark.parametrize("words", [(), ("--list", "07-0013"), ("-lst",)])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


def test_every_name_in_an_explanation_exists() -> None:
    """Explanations refer to other ids, such as `see 1D-0010`."""
    for each in everything():
        for word in f"{each.advice.cause} {each.advice.remedy}".replace("(", " ").replace(";", " ").split():
            name = word.strip(".,):")
            if len(name) == 7 and name[2] == "-" and name[3:].isdigit():
                assert find(name) is not None, (each.name, name)


def test_the_program_runs_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "amps.cli.explain.command", "07-0013"],
        capture_output=True, timeout=TIMEOUT_S, env=environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout[:20]) == (0, b"AMPS Message 07-0013")
