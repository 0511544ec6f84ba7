"""The options of a batch read, and their checks. Every error is a ValueError of one sentence that names the option.

| option | meaning |
| --- | --- |
| `path` | the journal directory; a path or a `file:` URI that all executors can read |
| `archive` | the archive directory, if journals were moved there |
| `instance` | the instance's name, if journals of several instances are in the directory |
| `topic` | only this topic; an expression if it has regex characters, as in a subscription |
| `kind` | only these kinds of records, separated by commas |
| `from`, `to` | only records in this range; see below |
| `schema` | fields of the payloads as a column `data`: a DDL text |
| `on_damage` | `error` (default), or `skip`: skip damaged parts, count them, and warn |
| `split_bytes` | approximate number of bytes of journals per task; default: see `amps.spark.task_sizes` |
| `pushdown` | `true`: the read applies conditions of the query; first read `amps.spark.pushdown`. Default `false` |
| `report` | an existing directory for JSON files with the figures of tasks: what they read and skipped per journal |

`from` and `to` are bookmarks of messages or times (`YYYYmmddTHHMMSS`, UTC, with or without a fraction;
transaction_log.md §5). The range begins after `from` and ends with `to`: the message `from` is not read, `to` is, so
one read can continue where another ended. Brackets change that, as in the intervals of bookmark
subscriptions: `[` or `(` before `from`, `]` or `)` after `to`. `from` may be `0`: the beginning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from amps._core.columns.columns import ALL_KINDS
from amps.journal.bookmark_text import read_message_bookmark, read_moment_us
from amps.spark.selection import KIND_BITS, NameTest, Selection, bits_of_kinds
from amps.topic_expressions import BadTopicExpression, topic_predicate

KNOWN = frozenset(
    {
        "path",
        "archive",
        "instance",
        "topic",
        "kind",
        "from",
        "to",
        "schema",
        "on_damage",
        "pushdown",
        "split_bytes",
        "report",
    }
)
OF_SERVER_STREAMS = frozenset(("uri", "message_type", "filter", "client_name", "timeout_s"))
ONLY_OF_STREAMS = OF_SERVER_STREAMS | {"start", "max_messages_per_batch", "max_bytes_per_batch", "partitions"}
"""Options that only streams have (`amps.spark.streaming_options`)."""
OF_JOURNAL_STREAMS = (KNOWN - {"from", "to", "pushdown"}) | (ONLY_OF_STREAMS - OF_SERVER_STREAMS)
SPLIT_BYTES = 128 << 20
"""Default size of a piece of a journal. A task reads one or more pieces."""
SPLIT_BYTES_MIN = 1 << 16
EPOCH = "0"


@dataclass(frozen=True, slots=True)
class Message:
    """An end of the range, given as a message; `included`: the range includes the message."""

    publisher_id: int
    sequence: int
    included: bool


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The checked options of a read."""

    path: Path
    archive: Path | None
    instance: str | None
    selection: Selection
    """The selection, without the conditions that need the journals."""
    first_message: Message | None
    last_message: Message | None
    schema: str | None
    skips_damage: bool
    pushdown: bool
    split_bytes: int
    """Approximate size of a piece of a journal."""
    task_bytes: int | None
    """Approximate size of a task; None: the option is not set."""
    report: Path | None


def read_options(given: Mapping[str, str], may_be_stream: bool = False) -> ReadOptions:
    """Check the options of a read. `may_be_stream`: the read may be a batch or a stream. Raises ValueError."""
    options = {name.lower(): value for name, value in given.items()}
    others = {"a stream from a journal directory": OF_JOURNAL_STREAMS} if may_be_stream else {}
    check_known(options, {"a batch read": KNOWN, **others})
    if not options.get("path"):
        raise ValueError("the option 'path' is missing: the journal directory")
    on_damage = options.get("on_damage", "error").lower()
    if on_damage not in ("error", "skip"):
        raise ValueError(f"the option 'on_damage' is {on_damage!r}: it must be 'error' or 'skip'")
    pushdown = options.get("pushdown", "false").lower()
    if pushdown not in ("true", "false"):
        raise ValueError(f"the option 'pushdown' is {pushdown!r}: it must be 'true' or 'false'")
    selection, first_message = _from(Selection(kinds=_kinds(options.get("kind"))), options.get("from"))
    selection, last_message = _to(selection, options.get("to"))
    if (topic := options.get("topic")) is not None:
        check_topic(topic)
        selection = replace(selection, topic_tests=(NameTest("option", (topic,)),))
    task_bytes = _task_bytes(options.get("split_bytes"))
    return ReadOptions(
        path=file_path(options["path"], "path"),
        archive=file_path(options["archive"], "archive") if options.get("archive") else None,
        instance=options.get("instance") or None,
        selection=selection,
        first_message=first_message,
        last_message=last_message,
        schema=options.get("schema") or None,
        skips_damage=on_damage == "skip",
        pushdown=pushdown == "true",
        split_bytes=task_bytes or SPLIT_BYTES,
        task_bytes=task_bytes,
        report=file_path(options["report"], "report") if options.get("report") else None,
    )


def check_known(options: Iterable[str], known: Mapping[str, frozenset[str]]) -> None:
    """Raise ValueError for an option that none of these uses has."""
    unknown = sorted(set(options).difference(*known.values()))
    if unknown:
        lists = "; ".join(
            f"the options of {use} are {', '.join(sorted(names))}" for use, names in known.items()
        )
        raise ValueError(f"unknown option {unknown[0]!r}: {lists}")


def check_topic(topic: str) -> None:
    """Raise ValueError for an invalid topic expression."""
    try:
        topic_predicate(topic, True)
    except BadTopicExpression as error:
        raise ValueError(f"the option 'topic' is no valid expression: {error}") from None


def file_path(value: str, option: str) -> Path:
    """Return the absolute path that an option names, a path or a `file:` URI. Raises ValueError."""
    if value.startswith("file:"):
        parts = urlsplit(value)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"the option {option!r} names another machine: {value!r}")
        value = unquote(parts.path)
    elif "://" in value:
        raise ValueError(f"the option {option!r} must be a directory of the file system, not {value!r}")
    path = Path(value)
    if not path.is_absolute():
        path = path.absolute()  # executors have different working directories
    return path


def _kinds(text: str | None) -> int:
    if text is None:
        return ALL_KINDS
    names = {name.strip() for name in text.split(",")} - {""}
    unknown = sorted(names - KIND_BITS.keys())
    if unknown or not names:
        wrong = repr(unknown[0]) if unknown else "nothing"
        raise ValueError(f"the option 'kind' names {wrong}: the kinds are {', '.join(KIND_BITS)}")
    return bits_of_kinds(names)


def _task_bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < SPLIT_BYTES_MIN:
        raise ValueError(
            f"the option 'split_bytes' is {text!r}: it must be a number of at least {SPLIT_BYTES_MIN}"
        )
    return int(text)


def _from(selection: Selection, text: str | None) -> tuple[Selection, Message | None]:
    if text is None:
        return selection, None
    point = text.strip()
    included = point.startswith("[")
    point = point[1:].strip() if point[:1] in ("[", "(") else point
    if point == EPOCH:
        return selection, None
    message = read_message_bookmark(point)
    if message is not None and message[0]:
        return selection, Message(*message, included)
    moment_us = _moment_us(point, "from")
    return selection.with_times(moment_us if included else moment_us + 1), None


def _to(selection: Selection, text: str | None) -> tuple[Selection, Message | None]:
    if text is None:
        return selection, None
    point = text.strip()
    included = not point.endswith(")")
    point = point[:-1].strip() if point[-1:] in ("]", ")") else point
    message = read_message_bookmark(point)
    if message is not None and message[0]:
        return selection, Message(*message, included)
    moment_us = _moment_us(point, "to")
    return selection.with_times(0, moment_us if included else moment_us - 1), None


def _moment_us(point: str, option: str) -> int:
    try:
        return read_moment_us(point)
    except ValueError:
        raise ValueError(
            f"the option {option!r} is {point[:100]!r}: it must be the bookmark of a message or a time of the form "
            "YYYYmmddTHHMMSS"
        ) from None
