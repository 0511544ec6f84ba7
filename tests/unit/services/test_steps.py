"""The effect of each module: texts and values, journals, commands, the log, the end."""

import asyncio
import os
from pathlib import Path

import pytest

from amps.server.services.actions import data_steps, server_steps
from tests.support.server import wait_until
from tests.support.services import Surroundings, action, do, echo, on, surroundings, when

STARTUP = on("startup")
ORDER = '{"id":7,"price":2.5,"side":"B","open":true,"text":"a\\u00e9"}'


def run(*steps: str, log: bool = False, **variables: str) -> Surroundings:
    """Run the steps once, as one action."""

    async def body() -> Surroundings:
        with surroundings(action(STARTUP, *steps), log=log) as made:
            await made.happened("startup", **variables)
            return made

    return asyncio.run(body())


def failure(*steps: str, log: bool = False, **variables: str) -> str:
    made = run(*steps, echo("not reached"), log=log, **variables)
    assert made.echoed() == []
    (text,) = made.log.texts("29-0002")
    return text


# --- texts and values -------------------------------------------------------------------------------------


def test_operations_64_a_counter_counts_from_one() -> None:
    """operations.md §13 64: 1, 2, 3, and each key separately."""
    count = do("increment-counter", Key="k{{K}}", Value="N")
    made = run(*[count, echo("{{N}}")] * 3, do("increment-counter", Key="other", Value="N"), echo("{{N}}"))
    assert made.echoed() == ["1", "2", "3", "1"]


def test_a_counter_for_everything_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_steps, "COUNTERS_MAX", 1)
    counting = [do("increment-counter", Key=key, Value="N") for key in "ab"]
    assert "more than 1 counters" in failure(*counting)


def test_operations_64_extract_values() -> None:
    """operations.md §13 64: `A = /x`, with or without spaces; several values; NULL is empty."""
    made = run(
        do(
            "extract-values",
            MessageType="json",
            Data="{{D}}",
            Value=("A = /id", "B=/price * 2", "C=/side", "D2 = /none", "E=/text", "F=/open"),
        ),
        echo("{{A}}|{{B}}|{{C}}|{{D2}}|{{E}}|{{F}}"),
        D=ORDER,
    )
    assert made.echoed()[0].split("|")[:5] == ["7", "5.0", "B", "", "aé"]


def test_extract_values_of_no_data_parses_nothing() -> None:
    made = run(do("extract-values", MessageType="json", Value=("A=1 + 2", "B=/x")), echo("{{A}}|{{B}}"))
    assert made.echoed() == ["3|"]


def test_extract_values_of_a_malformed_message_fails() -> None:
    text = failure(do("extract-values", MessageType="json", Data="{{D}}", Value="A=/x"), D="{broken")
    assert "cannot be read as a message of type json" in text


def test_extract_values_with_an_expression_made_of_variables() -> None:
    step = do("extract-values", MessageType="{{T}}", Data="{{D}}", Value="A={{E}}")
    assert run(step, echo("{{A}}"), T="json", D=ORDER, E="/id + 1").echoed() == ["8"]
    assert "the expression cannot be used" in failure(step, T="json", D=ORDER, E="/id +")
    assert "no message type" in failure(step, T="gif", D=ORDER, E="/id")
    assert "is empty" in failure(step, T="", D=ORDER, E="/id")


def test_operations_64_translate_data() -> None:
    """operations.md §13 64: without a match, the input or `Default`."""
    cases = ("B=buy", "S = sell", "X=")
    plain = do("translate-data", Data="{{D}}", Value="V", Case=cases)
    default = do("translate-data", Data="{{D}}", Value="V", Case=cases, Default="?{{D}}")
    for data, first, second in (("B", "buy", "buy"), ("S", "sell", "sell"), ("X", "", ""), ("Q", "Q", "?Q")):
        assert run(plain, echo("{{V}}"), default, echo("{{V}}"), D=data).echoed() == [first, second]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("'{{NAME}}' LIKE 'import'", True),
        ("'{{NAME}}' = 'other'", False),
        ("{{N}} &gt; 3", True),
        ("/x = 1", False),
        ("/x IS NULL", True),
        ("'{{NOPE}}' IS NULL", True),
        ("AMPS_INSTANCE_NAME() = 'n'", True),
    ],
)
def test_operations_9_3_a_condition(condition: str, holds: bool) -> None:
    """operations.md §9.3: a filter, evaluated after substitution, without a message."""
    made = run(when("condition", Condition=condition), echo("x"), NAME="important", N="4")
    assert made.echoed() == (["x"] if holds else [])
    assert not made.log.texts("29-0002")


def test_a_condition_that_variables_break_fails() -> None:
    assert "the expression cannot be used" in failure(when("condition", Condition="'{{V}}' = 'a'"), V="it's")


def test_operations_9_3_file_system_usage(tmp_path: Path) -> None:
    """operations.md §9.3: the action continues only above the threshold."""
    usage = os.statvfs(tmp_path)
    used = usage.f_blocks - usage.f_bfree
    percent = 100 * used / max(1, used + usage.f_bavail)
    step = when("file-system-usage", Path=str(tmp_path), GreaterThan="{{P}}")
    if percent > 2:
        assert run(step, echo("x"), P=f"{percent / 2:.3f}%").echoed() == ["x"]
    if percent < 98:
        assert run(step, echo("x"), P=f"{(percent + 100) / 2:.3f}").echoed() == []
    assert "cannot be examined" in failure(when("file-system-usage", Path="/none/at/all", GreaterThan="1%"))


# --- messages ---------------------------------------------------------------------------------------------


def test_operations_9_3_publish_message() -> None:
    """operations.md §9.3: topic, type and data after substitution."""
    made = run(do("publish-message", Topic="a.{{T}}", MessageType="json", Data="{{D}}"), T="b", D=ORDER)
    assert made.publisher.messages == [("a.b", "json", ORDER.encode())]


def test_an_echoed_text_stays_one_record() -> None:
    """A text of many lines is one record; bytes that are not UTF-8 are shown."""
    assert run(echo("{{V}}"), V="a\nb\udcff").echoed() == ["a\nb\\xff"]


# --- journals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["compress", "remove"])
def test_operations_9_3_journals_are_marked_by_age(verb: str) -> None:
    """operations.md §9.3, transaction_log.md §13.1"""

    async def body() -> Surroundings:
        with surroundings(action(STARTUP, do(f"{verb}-journals", Age="36h"), echo("x")), log=True) as made:
            made.core.marked = [3, 4]
            await made.happened("startup")
            return made

    made = asyncio.run(body())
    assert made.core.asked == [(verb, [{"age_s": 129600.0}])]
    assert made.echoed() == ["x"]
    (text,) = made.log.texts("29-0004")
    assert text.endswith(f"journals to {verb}: 3, 4.")


def test_a_core_that_refuses_fails_the_step() -> None:
    async def body() -> Surroundings:
        xml = action(STARTUP, do("remove-journal", Age="1d"), do("compress-journal", Age="1d"))
        with surroundings(xml, log=True) as made:
            made.core.refusal = "no room"
            await made.happened("startup")
            return made

    made = asyncio.run(body())
    assert len(made.core.asked) == 1
    assert "did not succeed: no room" in made.log.texts("29-0002")[0]


# --- the server and its host ------------------------------------------------------------------------------


def test_operations_9_3_a_command_runs_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """operations.md §9.3"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_SERVER", "yes")
    run(do("execute-system", Command="echo $OF_THE_SERVER {{A}} &gt; out"), A="b")
    assert (tmp_path / "out").read_text() == "yes b\n"


def test_a_command_that_fails_fails_the_step() -> None:
    text = failure(do("execute-system", Command="echo what went wrong &gt;&amp;2; exit 3"))
    assert "ended with status 3; its output: what went wrong" in text


def test_a_command_that_hangs_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_steps, "COMMAND_WARNING_S", 0.3)
    monkeypatch.setattr(server_steps, "COMMAND_KILL_S", 0.6)
    pid_file = tmp_path / "pid"
    made = run(do("execute-system", Command=f"sleep 600 &amp; echo $! &gt; {pid_file}; wait"))
    assert "was killed" in made.log.texts("29-0002")[0]
    assert made.log.texts("29-0005")
    pid = int(pid_file.read_text())

    def has_ended() -> bool:
        """A killed process ends only when a processor runs it again."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    wait_until(has_ended, 20, f"process {pid} is still there")


def test_a_command_that_leaves_something_in_the_background_ends(tmp_path: Path) -> None:
    """A background process that holds the output does not delay the action."""
    pid_file = tmp_path / "pid"
    made = run(do("execute-system", Command=f"sleep 600 &amp; echo $! &gt; {pid_file}"), echo("x"))
    assert made.echoed() == ["x"]
    os.kill(int(pid_file.read_text()), 9)


def test_a_command_with_a_nul_is_refused() -> None:
    assert "NUL" in failure(do("execute-system", Command="echo {{AMPS_BYTE_00}}"))


def test_operations_9_3_rotate_logs_shutdown_nothing() -> None:
    """operations.md §9.3"""
    made = run(do("nothing"), do("rotate-logs"), do("shutdown"), echo("x"))
    assert made.log.rotations == 1
    assert made.shutdowns == ["the action at actions.xml:1"]
    assert made.echoed() == ["x"]
