"""Running actions: order, ends, variables, events that raise events, waiting events."""

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from amps.config.action_modules import CONDITIONS, EVENTS, STEPS
from amps.server.services.actions import engine as engine_module
from amps.server.services.actions.engine import Busy
from amps.server.services.actions.registry import STEP_CLASSES
from amps.server.services.actions.step import Run, Step, StepFailure
from amps.server.services.actions.variables import TEXT_LENGTH_MAX
from tests.support.services import Surroundings, action, do, echo, on, surroundings, when

STARTUP = on("startup")
FAILING = do("publish-message", Topic="t", MessageType="json", Data="d")


def run_startup(actions_xml: str, **variables: str) -> Surroundings:
    """Run the actions of the startup event once."""

    async def body() -> Surroundings:
        with surroundings(actions_xml) as made:
            made.publisher.refusal = "no"
            await made.happened("startup", **variables)
            return made

    return asyncio.run(body())


def test_every_described_module_exists() -> None:
    """The tables of the configuration and the registry name the same modules."""
    described = {name for name, one in {**STEPS, **CONDITIONS}.items() if not (one.later or one.unused)}
    assert set(STEP_CLASSES) == described
    assert {
        name.removeprefix("amps-action-on-") for name, one in EVENTS.items() if not (one.later or one.unused)
    } == {
        "schedule",
        "startup",
        "shutdown",
        "signal",
        "admin",
        "execute-event",
        "publish-message",
        "sow-expire-message",
        "sow-delete-message",
        "connect-replication",
        "disconnect-replication",
        "replication-resync-complete",
        "upgrade-replication",
        "downgrade-replication",
        "connect-incoming-replication",
        "disconnect-incoming-replication",
    }


def test_every_described_option_is_read() -> None:
    """An option is read by the class of its step or one of its bases; options of events by their sources."""

    def read(source: str) -> set[str]:
        nodes = [
            node for node in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(node, ast.Subscript)
        ]
        keys = [node.slice for node in nodes if ast.unparse(node.value).split(".")[-1] == "options"]
        return {str(key.value) for key in keys if isinstance(key, ast.Constant)}

    for name, made in STEP_CLASSES.items():
        described = {**STEPS, **CONDITIONS}[name].options
        parts = [part for part in made.__mro__ if part.__module__.startswith("amps.server.services.actions")]
        found = set().union(*(read(inspect.getsource(part)) for part in parts))
        refused_unless_off = {"Delta", "UpdateOnly"}
        assert set(described) - refused_unless_off <= found, name


def test_operations_63_actions_on_one_event_run_in_file_order() -> None:
    """operations.md §13 63"""
    made = run_startup(action(STARTUP, echo("1"), echo("2")) + action(STARTUP, echo("3")))
    assert made.echoed() == ["1", "2", "3"]


def test_operations_63_nothing_runs_after_a_false_condition() -> None:
    """operations.md §13 63: a false `If` ends the run without a failure."""
    made = run_startup(
        action(STARTUP, echo("1"), when("condition", Condition="1 = 2"), echo("2"))
        + action(STARTUP, echo("3"))
    )
    assert made.echoed() == ["1", "3"]
    assert not made.log.texts("29-0002")


def test_operations_63_nothing_runs_after_a_failed_step() -> None:
    """operations.md §13 63: a failed `Do` skips the rest and is logged; other actions of the event run."""
    made = run_startup(action(STARTUP, echo("1"), FAILING, echo("2")) + action(STARTUP, echo("3")))
    assert made.echoed() == ["1", "3"]
    (text,) = made.log.texts("29-0002")
    assert "actions.xml:1" in text
    assert "amps-action-do-publish-message did not succeed: no" in text


def test_operations_63_each_of_two_events_triggers() -> None:
    """operations.md §13 63"""

    async def body() -> list[str]:
        xml = action(on("signal", Signal="USR1"), on("execute-event", Event="e"), echo("x"))
        with surroundings(xml) as made:
            await made.happened("signal", "SIGUSR1")
            await made.happened("execute-event", "e")
            return made.echoed()

    assert asyncio.run(body()) == ["x", "x"]


def test_operations_64_variables() -> None:
    """operations.md §13 64, §9.1: undefined ones are empty, bytes are bytes, others are set when the action begins."""
    made = run_startup(
        action(
            STARTUP,
            echo("[{{NOPE}}] {{AMPS_INSTANCE_NAME}} {{AMPS_UNIX_TIMESTAMP}} {{AMPS_DATETIME}} {{ V }}"),
        ),
        V="{{AMPS_INSTANCE_NAME}}",
        AMPS_INSTANCE_NAME="forged",
    )
    assert made.echoed() == ["[] n 1700000000 2023-11-14T22:13:20.500000Z {{AMPS_INSTANCE_NAME}}"]


def test_operations_64_bytes_in_a_message() -> None:
    """operations.md §13 64: `{{AMPS_BYTE_XX}}` is that one byte, even if the text is not UTF-8 then."""

    async def body() -> list[tuple[str, str, bytes]]:
        data = "a{{AMPS_BYTE_01}}{{AMPS_BYTE_FF}}{{AMPS_BYTE_C3}}{{AMPS_BYTE_A9}}{{AMPS_BYTE_ff}}é"
        xml = action(STARTUP, do("publish-message", Topic="t", MessageType="nvfix", Data=data))
        with surroundings(xml) as made:
            assert await made.happened("startup") is None
            return made.publisher.messages

    assert asyncio.run(body()) == [("t", "nvfix", b"a\x01\xff\xc3\xa9\xc3\xa9")]


def test_operations_68_a_bad_value_after_substitution_fails_the_step() -> None:
    """operations.md §13 68, transaction_log.md §22 60: `AGE` = `LastThursday` is logged, and nothing is archived."""

    async def body() -> tuple[str | None, Surroundings]:
        xml = action(on("admin", Path="arch", RequiredParameter="AGE"), do("remove-journal", Age="{{AGE}}"))
        with surroundings(xml, log=True) as made:
            return await made.happened("admin", "arch", AGE="LastThursday"), made

    reason, made = asyncio.run(body())
    assert reason is not None
    assert "Age: 'LastThursday' is not an interval" in reason
    assert made.log.texts("29-0002")
    assert not made.core.asked


def test_an_exception_in_a_module_is_logged_and_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(self: Step, options: Mapping[str, Any], run: Run) -> bool:
        raise RuntimeError("a fault")

    monkeypatch.setattr(STEP_CLASSES["amps-action-do-nothing"], "run", run)
    made = run_startup(action(STARTUP, do("nothing"), echo("1")) + action(STARTUP, echo("2")))
    assert made.echoed() == ["2"]
    assert "RuntimeError: a fault" in made.log.texts("01-0005")[0]


def test_an_event_inherits_the_variables() -> None:
    """operations.md §9.3: execute-event passes the current variables on, under each name of the module."""
    xml = (
        action(STARTUP, do("execute-event", Event="e"), do("execute-event", EventVariable="NAME"))
        + action(on("execute-event", Event="e"), echo("e {{V}}"))
        + action(on("execute-event", Event="f"), echo("f {{V}}"))
    )
    assert run_startup(xml, V="v", NAME="f").echoed() == ["e v", "f v"]


def test_an_event_that_raises_itself_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "EVENT_DEPTH_MAX", 3)
    xml = action(STARTUP, do("execute-event", Event="e")) + action(
        on("execute-event", Event="e"), echo("e"), do("execute-event", Event="e")
    )
    made = run_startup(xml)
    assert made.echoed() == ["e"] * 3
    assert "make sure that no event raises itself" in made.log.texts("29-0002")[0]


def test_an_event_that_multiplies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WAITING_MAX", 5)
    monkeypatch.setattr(engine_module.Source, "__init__", _bounded(engine_module.Source.__init__, 5))
    raising = do("execute-event", Event="e")
    xml = action(STARTUP, raising) + action(on("execute-event", Event="e"), raising, raising)
    made = run_startup(xml)
    assert any("5 occurrences of the event" in text for text in made.log.texts("29-0002"))


def _bounded(original: Any, most: int) -> Any:
    def init(self: Any, name: str, *rest: Any, **more: Any) -> None:
        original(self, name, *rest, **{"waiting_max": most, **more})

    return init


def test_operations_9_7_a_schedule_that_is_due_meanwhile_runs_once_afterwards() -> None:
    """operations.md §9.7: a run is not interrupted; all due times during it make one more run."""

    async def body() -> int:
        xml = action(
            on("schedule", Every="1h"), do("publish-message", Topic="t", MessageType="json", Data="d")
        )
        with surroundings(xml) as made:
            ((kind, which),) = made.engine.sources
            running = asyncio.Event()
            go_on = asyncio.Event()

            async def publish(topic: str, message_type: str, data: bytes, _delay_ms: int | None) -> None:
                made.publisher.messages.append((topic, message_type, data))
                running.set()
                await go_on.wait()

            made.publisher.publish = publish  # type: ignore[method-assign]
            first = made.engine.happened(kind, which)
            await running.wait()
            assert made.engine.happened(kind, which) is not None
            assert made.engine.happened(kind, which) is None
            assert made.engine.happened(kind, which) is None
            assert len(made.publisher.messages) == 1
            assert first is not None
            assert not first.done()
            go_on.set()
            await made.engine.idle()
            return len(made.publisher.messages)

    assert asyncio.run(body()) == 2


def test_sources_do_not_wait_for_each_other() -> None:
    """operations.md §9.7: one worker per event source."""

    async def body() -> list[str]:
        publishing = do("publish-message", Topic="t", MessageType="json", Data="d")
        xml = action(on("signal", Signal="SIGUSR1"), publishing) + action(
            on("signal", Signal="SIGUSR2"), echo("x")
        )
        with surroundings(xml) as made:
            go_on = asyncio.Event()

            async def publish(*_: object) -> None:
                await go_on.wait()

            made.publisher.publish = publish  # type: ignore[method-assign,assignment]
            made.engine.happened("signal", "SIGUSR1")
            other = made.engine.happened("signal", "SIGUSR2")
            assert other is not None
            await other
            go_on.set()
            await made.engine.idle()
            return made.echoed()

    assert asyncio.run(body()) == ["x"]


def test_schedules_of_the_same_time_are_one_event() -> None:
    """operations.md §9.1: actions on one event run in file order, also if both give the same time."""

    async def body() -> int:
        one = action(on("schedule", Every="02:15Z", Name="a"), echo("1"))
        other = action(on("schedule", Every="2:15z", Name="b"), echo("2"))
        with surroundings(one + other) as made:
            return len(made.engine.sources)

    assert asyncio.run(body()) == 1


def test_an_event_without_actions_is_ignored() -> None:
    async def body() -> None:
        with surroundings(action(STARTUP, echo("x"))) as made:
            assert made.engine.happened("signal", "SIGUSR1") is None

    asyncio.run(body())


def test_too_many_waiting_events_are_refused() -> None:
    async def body() -> None:
        with surroundings(action(on("admin", Path="p"), echo("x"))) as made:
            made.engine.sources["admin", "p"].waiting_max = 2
            made.engine.happened("admin", "p")
            made.engine.happened("admin", "p")
            with pytest.raises(Busy):
                made.engine.happened("admin", "p")
            await made.engine.idle()

    asyncio.run(body())


def test_descriptions_of_a_path_are_merged() -> None:
    async def body() -> None:
        xml = action(
            on("admin", Path="p", RequiredParameter=("A", "B"), Name="N", Description="D"), echo("x")
        ) + action(on("admin", Path="p", RequiredParameter="C"), echo("y"))
        with surroundings(xml) as made:
            path = made.engine.admin_paths["p"]
            assert (path.required, path.name, path.description) == (["A", "B", "C"], "N", "D")

    asyncio.run(body())


def test_variables_are_bounded() -> None:
    run = Run({}, "here")
    with pytest.raises(StepFailure, match="longer than"):
        run.set("A", "x" * (TEXT_LENGTH_MAX + 1))
