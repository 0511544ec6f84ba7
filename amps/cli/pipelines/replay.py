"""`amps pipeline replay`: publish the messages of an archive or of journals again."""

import datetime
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amps.cli.options import HelpfulCommand, option
from amps.cli.pipelines.common import counted, job_options, shown_progress, spark_session

if TYPE_CHECKING:
    from amps.spark.pipelines.replay import ReplayOptions, ReplayResult

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


class Pace(click.ParamType[float]):
    """A pace: `original`, a factor, or `max`, which is infinity."""

    name = "original|N|max"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        named = {"original": 1.0, "max": math.inf}
        if str(value).lower() in named:
            return named[str(value).lower()]
        try:
            speed = float(value)
        except ValueError:
            speed = 0.0
        if not 0 < speed < math.inf:
            self.fail(
                f"{value!r} is neither original nor max nor a positive number (of times faster)", param, ctx
            )
        return speed


@click.command(
    "replay",
    cls=HelpfulCommand,
    example="amps pipeline replay /archive/desk-7 --uri tcp://localhost:9007/amps/json --topic orders --pace 60",
)
@click.argument("source", type=_DIRECTORY)
@option("uri", required=True, metavar="URI", help="The server, as tcp://[user:password@]host:port/amps/json.")
@option("topic", help="Only this topic, or those that match this expression.")
@option("from", "first", metavar="POINT", help="A bookmark or a time (YYYYmmddTHHMMSS) after which to begin.")
@option("to", "last", metavar="POINT", help="A bookmark or a time up to which to go.")
@option(
    "pace",
    type=Pace(),
    default="original",
    show_default=True,
    help="original: as in the log; a number: so many times faster; max: limited by acknowledgements only.",
)
@option("to-topic", "to_topic", metavar="TOPIC", help="Publish everything to this topic.")
@option("to-prefix", "to_prefix", metavar="TEXT", default="", help="Put this before each message's topic.")
@option(
    "streams",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="With -pace max: number of parallel streams. Each topic keeps its order, the log as a whole does not.",
)
@option(
    "run-id", "run_id", metavar="NAME", help="A replay repeated with the same name adds missing messages."
)
@option(
    "client-name", "client_name", metavar="NAME", default="replay", show_default=True,
    help="First part of the publishers' names.",
)  # fmt: skip
@option("archive", type=_DIRECTORY, help="The JournalArchiveDirectory of journals, if there is one.")
@option("name", metavar="INSTANCE", help="The instance, if a directory holds journals of several.")
@option(
    "allow-unrecorded",
    "allow_unrecorded",
    is_flag=True,
    help="Allow topics that no transaction log records; they may then get messages twice.",
)
@job_options
def replay(
    source: Path,
    uri: str,
    pace: float,
    run_id: str | None,
    archive: Path | None,
    name: str | None,
    master: str,
    dry_run: bool,
    **more: Any,
) -> None:
    """Publish the messages of an archive or of journals again, in the order of the log.

    SOURCE is an archive of `amps pipeline archive`, or a JournalDirectory. Publishes and delta publishes of the message
    type of the URI are replayed, each with its kind. Deletes, records of queues and messages of other types are left
    out, and counted.
    """
    from amps.spark.pipelines.replay import ReplayOptions, run

    if run_id is not None:
        more["run_id"] = run_id
    options = ReplayOptions(
        source=source,
        uri=uri,
        speed=None if math.isinf(pace) else pace,
        archive=archive,
        instance=name,
        **more,
    )
    if dry_run:
        _show_plan(options)
        return
    with spark_session(master, "amps pipeline replay") as spark, shown_progress() as progress:
        result = run(spark, options, progress)
    _show_result(result)


def _show_plan(options: "ReplayOptions") -> None:
    from amps.spark.pipelines.replay import plan

    source = plan(options)
    rows = "" if source.rows_max is None else f"at most {counted(source.rows_max, 'row')}, "
    click.echo(f"to replay: {rows}about {source.size_bytes:,} bytes to read")
    if source.span_us is not None:
        first, last = source.span_us
        click.echo(f"  from {_utc(first)} to {_utc(last)}")
        if options.speed is not None:
            duration = datetime.timedelta(seconds=round((last - first) / 1e6 / options.speed))
            click.echo(f"  takes about {duration} at this pace")
    order = "the order of the log" if options.streams == 1 else "each topic's order"
    click.echo(f"  {counted(options.streams, 'stream')}: keeps {order}")


def _utc(time_us: int) -> str:
    return datetime.datetime.fromtimestamp(time_us // 10**6, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _show_result(result: "ReplayResult") -> None:
    again = f", {result.found:,} of them by an earlier run" if result.found else ""
    click.echo(f"published: {counted(result.rows, 'message')}{again}")
    for what, count in result.left_out.items():
        click.echo(f"left out: {count:,} {what}")
    click.echo(f"run id: {result.run_id}")
