"""The options of a read of a SOW topic's state, and their checks. Every error is a ValueError of one sentence.

| option | meaning |
| --- | --- |
| `sow` | the topic; of a topic with `Pattern`, one of its topics, or its own name for all of them |
| `path` | the journal directory, as for other reads |
| `sow_file` | the topic's value file (its FileName); needed if journals were removed, or the topic is not recorded |
| `bookmark`, `asOf` | the state as of a message or a time (`YYYYmmddTHHMMSS`, UTC), both included. Default: now |
| `message_type` | the topic's message type, if the journals have topics of that name with several |
| `archive`, `instance`, `schema` | as for other reads |
| `partitions` | number of tasks; default: by the number of cores |

With `sow_file`, `path` may be left out: the file names the journal directory of the server that used it last.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amps.journal.bookmark_text import read_message_bookmark, read_moment_us
from amps.journal.sow_state import Moment
from amps.spark.options import check_known, file_path

KNOWN = frozenset(
    {
        "sow",
        "path",
        "sow_file",
        "bookmark",
        "asof",
        "message_type",
        "archive",
        "instance",
        "schema",
        "partitions",
    }
)
PARTITIONS_DIGITS_MAX = 6


@dataclass(frozen=True, slots=True)
class SowOptions:
    """The checked options. `path` None: the value file says where the journals are."""

    topic: str
    path: Path | None
    archive: Path | None
    instance: str | None
    sow_file: Path | None
    moment: Moment | None
    message_type: str | None
    schema: str | None
    partitions: int | None


def reads_state(given: Mapping[str, str]) -> bool:
    """Whether these are options of a read of a topic's state."""
    return any(name.lower() == "sow" for name in given)


def sow_options(given: Mapping[str, str]) -> SowOptions:
    """Check the options. Raises ValueError."""
    options = {name.lower(): value for name, value in given.items()}
    check_known(options, {"a read of a SOW topic": KNOWN})
    if not options["sow"]:
        raise ValueError("the option 'sow' is empty: it must be the name of a topic")
    if not options.get("path") and not options.get("sow_file"):
        raise ValueError("the option 'path' is missing: the journal directory, or 'sow_file': the topic's value file")
    partitions = options.get("partitions")
    if partitions is not None and not (
        partitions.isascii() and partitions.isdigit() and len(partitions) <= PARTITIONS_DIGITS_MAX and int(partitions)
    ):
        raise ValueError(f"the option 'partitions' is {partitions!r}: it must be a positive number")

    def path(name: str) -> Path | None:
        return file_path(options[name], name) if options.get(name) else None

    return SowOptions(
        topic=options["sow"],
        path=path("path"),
        archive=path("archive"),
        instance=options.get("instance") or None,
        sow_file=path("sow_file"),
        moment=_moment(options),
        message_type=options.get("message_type") or None,
        schema=options.get("schema") or None,
        partitions=None if partitions is None else int(partitions),
    )


def _moment(options: Mapping[str, str]) -> Moment | None:
    given = [name for name in ("bookmark", "asof") if options.get(name)]
    if not given:
        return None
    if len(given) > 1:
        raise ValueError("the options 'bookmark' and 'asOf' both name the moment: give one of them")
    text = options[given[0]].strip()
    message = read_message_bookmark(text)
    if message is not None and message[0]:
        return Moment(text, message=message)
    try:
        return Moment(text, time_us=read_moment_us(text))
    except ValueError:
        name = {"asof": "asOf"}.get(given[0], given[0])
        raise ValueError(
            f"the option {name!r} is {text[:100]!r}: it must be the bookmark of a message or a time of the form "
            "YYYYmmddTHHMMSS"
        ) from None
