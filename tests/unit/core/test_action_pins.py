"""The starting positions of new actions on queues, and the journals that actions keep from removal."""

from pathlib import Path

from amps.config import load
from amps.config.model import ServerConfig
from amps.journal.action_positions import read_action_positions, write_action_positions
from amps.journal.disk import Disk
from amps.journal.names import action_positions_path
from amps.server.action_progress import ActionProgress
from amps.server.core.action_pins import (
    LOOK_INTERVAL_S,
    ActionPins,
    begin_action_positions,
    watched_queues,
)
from tests.support.queue_configurations import TOPICS, configuration, element, logged
from tests.support.reports import Reports
from tests.support.services import action, echo, on

EXPIRE, DELETE = "sow-expire-message", "sow-delete-message"
FAR = 1 << 63


def config(*events: tuple[str, str]) -> ServerConfig:
    """A configuration with three queues, and an action on each of these events."""
    sow = "".join(element(name, "<UnderlyingTopic>T</UnderlyingTopic>") for name in ("Q1", "Q2", "Q3"))
    made = "".join(action(on(module, Topic=queue, MessageType="json"), echo("x")) for module, queue in events)
    actions = f"<Actions>{made}</Actions>" if made else ""
    return load("c.xml", text=configuration(sow, logged(*TOPICS) + actions)).config


class Directory:
    """A journal directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reports = Reports()

    def begin(self, position: int, *events: tuple[str, str]) -> dict[tuple[str, str], int] | None:
        """The content of the file after a start, or None if there is no file."""
        begin_action_positions(config(*events), self.path, Disk(), position, self.reports)
        path = action_positions_path(self.path, "here")
        if not path.exists():
            return None
        return {(module, queue): at for (module, _, queue), at in read_action_positions(path).items()}

    def write(self, positions: dict[tuple[str, str], int]) -> None:
        write_action_positions(
            Disk(),
            action_positions_path(self.path, "here"),
            {(module, "json", queue): position for (module, queue), position in positions.items()},
        )


def test_a_new_action_begins_at_the_end_of_the_log(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    assert directory.begin(5000) is None
    assert directory.begin(6000, (EXPIRE, "Q1")) == {(EXPIRE, "Q1"): 6000}
    found = directory.begin(7000, (DELETE, "Q1"), (EXPIRE, "Q1"))
    assert found == {(EXPIRE, "Q1"): 6000, (DELETE, "Q1"): 7000}


def test_a_removed_action_is_forgotten(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.begin(6000, (EXPIRE, "Q1"), (EXPIRE, "Q2"))
    assert directory.begin(7000, (EXPIRE, "Q2")) == {(EXPIRE, "Q2"): 6000}
    assert directory.begin(8000) == {}
    assert directory.begin(9000, (EXPIRE, "Q1")) == {(EXPIRE, "Q1"): 9000}


def test_a_log_that_was_replaced(tmp_path: Path) -> None:
    """A position behind the end of the log belongs to another log."""
    directory = Directory(tmp_path)
    directory.write({(EXPIRE, "Q1"): 1_000_000})
    assert directory.begin(4096, (EXPIRE, "Q1")) == {(EXPIRE, "Q1"): 4096}


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    action_positions_path(tmp_path, "here").write_text("{")
    assert directory.begin(6000, (EXPIRE, "Q1")) == {(EXPIRE, "Q1"): 6000}
    ((event, text),) = directory.reports
    assert event == "29-0010"
    assert "continue at the end of the log" in text


def test_queues_with_actions() -> None:
    assert watched_queues(config((DELETE, "Q3"), (EXPIRE, "Q1"))) == [0, 2]
    assert watched_queues(config()) == []


class Pins:
    """Pins over a log whose journals are 1000 bytes long."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.oldest = FAR
        self.written = 0
        self.progress = ActionProgress()
        self.pins = ActionPins(
            lambda: self.oldest, self.progress, lambda position: position // 1000, lambda: self.now_s
        )

    def look(self, times: int = 3) -> int:
        """The oldest journal that is needed, after several looks."""
        for _ in range(times):
            self.now_s += LOOK_INTERVAL_S
            self.pins.look(self.written)
        return self.pins.oldest_journal()


def test_no_journal_is_released_before_actions_have_published_their_position() -> None:
    pins = Pins()
    pins.written = 7500
    assert pins.look() == 0
    pins.progress.position = 7500
    assert pins.look() == 7


def test_a_message_in_a_queue_keeps_its_journal() -> None:
    pins = Pins()
    pins.oldest, pins.written = 2500, 7500
    pins.progress.position = 7500
    assert pins.look() == 2


def test_a_removed_message_keeps_its_journal_until_actions_reach_its_removal() -> None:
    pins = Pins()
    pins.oldest, pins.written = 2500, 7500
    pins.progress.position = 7500
    assert pins.look() == 2
    pins.oldest, pins.written = FAR, 7600  # it left the queue, at 7500
    assert pins.look() == 2
    pins.progress.position = 7599
    assert pins.look() == 2
    pins.progress.position = 7600
    assert pins.look() == 7


def test_a_removal_stays_noted_when_others_follow() -> None:
    """A noted removal stays until actions have passed its position, however many removals follow."""
    pins = Pins()
    pins.oldest, pins.written = 2500, 7500
    assert pins.look() == 0
    pins.oldest, pins.written = FAR, 9000
    pins.progress.position = 7500
    assert pins.look() == 2
    pins.progress.position = 8999
    assert pins.look() == 2
    pins.progress.position = 9000
    assert pins.look() == 9


def test_it_looks_at_intervals_only() -> None:
    pins = Pins()
    pins.progress.position = 1000
    pins.written = 1000
    pins.pins.look(1000)
    pins.pins.look(1000)
    assert pins.pins.oldest_journal() == 0
