"""Drawing readings with rich. Names that clients chose are made printable, and are never read as markup."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from amps.cli.bodies import printable
from amps.cli.top.state import VIEWS, Reading, Row, sorted_rows

TITLES = {
    "in_per_s": "in/s",
    "out_per_s": "out/s",
    "age_s": "age",
    "lease_age_s": "lease age",
    "expired_leases": "expired",
    "transactions": "tx",
    "transactions_lease_lost": "tx lost",
    "transactions_refused": "tx refused",
    "sub_id": "sub id",
    "behind_s": "behind s",
    "messages_per_s": "messages/s",
    "stored_bytes": "bytes",
    "inserts_per_s": "inserts/s",
    "updates_per_s": "updates/s",
    "deletes_per_s": "deletes/s",
    "queries_per_s": "queries/s",
}
NUMBERS = frozenset(
    ("depth", "in_per_s", "out_per_s", "age_s", "consumers", "leased", "lease_age_s", "expired_leases", "inactive",
     "delayed", "waiting", "transactions", "transactions_lease_lost", "transactions_refused",
     "subscriptions", "topics", "clients", "backlog", "replays", "behind_s", "messages_per_s", "disconnects",
     "records", "stored_bytes", "inserts_per_s", "updates_per_s", "deletes_per_s", "queries_per_s")
)  # fmt: skip
FIRST_SORT = {
    "queues": "depth", "clients": "backlog", "subscriptions": "client", "topics": "topic",
    "destinations": "destination", "sow": "topic",
}  # fmt: skip
OF_SOME_INSTANCES = ("destinations", "sow")
"""The views that are shown only if they have rows, or were asked for."""
KEYS_HELP = "q quit  1-6 or tab view  s S sort  r reverse  p pause  j k scroll"
EMPTY = "-"
LINES_AROUND_ROWS = 5
"""Two lines of heading, the two lines above the rows of the table, and the line of keys."""


@dataclass
class Choice:
    """What the user chose to see."""

    view: str = "queues"
    sort: dict[str, str] = field(default_factory=lambda: dict(FIRST_SORT))
    reverse: dict[str, bool] = field(
        default_factory=lambda: {view: column in NUMBERS for view, column in FIRST_SORT.items()}
    )
    paused: bool = False
    offset: int = 0

    def show(self, view: str) -> None:
        """Change to another view."""
        self.view = view
        self.offset = 0

    def next_view(self) -> None:
        """Change to the view after this one."""
        names = list(VIEWS)
        self.show(names[(names.index(self.view) + 1) % len(names)])

    def next_sort(self, step: int) -> None:
        """Sort by the next column, or by the previous one with a step of -1. Numbers begin with the largest."""
        columns = VIEWS[self.view]
        column = columns[(columns.index(self.sort[self.view]) + step) % len(columns)]
        self.sort[self.view] = column
        self.reverse[self.view] = column in NUMBERS

    def rows(self, reading: Reading) -> list[Row]:
        """All rows of the chosen view, in the chosen order."""
        rows: Sequence[Row] = getattr(reading, self.view)
        return sorted_rows(rows, self.sort[self.view], self.reverse[self.view])


def cell(column: str, value: object) -> str:
    """A value as it is shown."""
    if value is None:
        return EMPTY
    if column.endswith("age_s") and isinstance(value, int):
        return age(value)
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value)).replace("\n", "\\n")


def age(seconds: int) -> str:
    """A time span: `5s`, `2m05s`, `3h02m`, `4d01h`."""
    for unit, name, smaller, smaller_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= unit:
            return f"{seconds // unit}{name}{seconds % unit // smaller:02}{smaller_name}"
    return f"{seconds}s"


def table(view: str, rows: Sequence[Row], sort: str = "", reverse: bool = False) -> Table:
    """Rows as a table; an arrow marks the column of the order."""
    made = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for column in VIEWS[view]:
        title = TITLES.get(column, column)
        if column == sort:
            title += " ▼" if reverse else " ▲"
        number = column in NUMBERS and column != view
        made.add_column(
            Text(title), justify="right" if number else "left", no_wrap=True, overflow="ellipsis",
            min_width=len(title) if number else 4,
        )  # fmt: skip
    for row in rows:
        made.add_row(*(Text(cell(column, row[column])) for column in VIEWS[view]))
    return made


def heading(reading: Reading) -> Text:
    """One line about the instance."""
    instance = reading.instance
    parts = [f"{instance['name']}  {instance['version']}  pid {cell('pid', instance['pid']).replace(',', '')}"]
    for name in ("clients", "subscriptions", "queues"):
        parts.append(f"{name} {len(getattr(reading, name)):,}")
    if instance["journals"] is not None:
        parts.append(f"journals {instance['journals']:,}")
    if instance["journal_free_percent"] is not None:
        parts.append(f"{instance['journal_free_percent']:.1f} % of their disk free")
    return Text(printable("   ".join(parts)), style="bold", no_wrap=True, overflow="ellipsis")


def screen(
    reading: Reading | None, choice: Choice, problem: str | None, when: str, height: int
) -> RenderableType:
    """The whole screen: heading, state, rows and keys. `when`: the time of the reading; `problem`: of the last try."""
    lines: list[RenderableType] = [Text("amps top") if reading is None else heading(reading)]
    state = Text(no_wrap=True, overflow="ellipsis")
    for number, view in enumerate(VIEWS, 1):
        if view in OF_SOME_INSTANCES and view != choice.view and not (reading and getattr(reading, view)):
            continue
        state.append(f"{number} {view}", style="reverse" if view == choice.view else "")
        state.append("  ")
    state.append(when)
    if choice.paused:
        state.append("  PAUSED", style="bold yellow")
    if problem is not None:
        state = Text(printable(problem), style="bold red", no_wrap=True, overflow="ellipsis")
    lines.append(state)
    room = max(0, height - LINES_AROUND_ROWS)
    shown = 0
    if reading is not None:
        rows = choice.rows(reading)
        choice.offset = max(0, min(choice.offset, len(rows) - room))
        visible = rows[choice.offset : choice.offset + room]
        lines.append(Text())
        made = table(choice.view, visible, choice.sort[choice.view], choice.reverse[choice.view])
        made.style = "dim" if problem is not None else ""
        lines.append(made)
        shown = len(visible)
        last = choice.offset + shown
        position = f"{choice.offset + 1}-{last} of {len(rows):,}  " if visible else f"{len(rows):,} rows  "
    else:
        lines += [Text(), Text()]
        position = ""
    lines += [Text()] * (room - shown)
    lines.append(Text(position + KEYS_HELP, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def write_once(console: Console, reading: Reading, views: Sequence[str]) -> None:
    """Write the views one after the other, but for empty ones that most instances do not have."""
    choice = Choice()
    console.print(heading(reading), soft_wrap=True)
    for view in views:
        if view in OF_SOME_INSTANCES and len(views) > 1 and not getattr(reading, view):
            continue
        choice.show(view)
        console.print()
        console.print(Text(view, style="bold"))
        console.print(table(view, choice.rows(reading)))
