"""The group `amps pipeline`, and the handling of failures of its commands."""

from typing import Any

import click

from amps.cli.failures import tell
from amps.cli.options import HelpfulGroup
from amps.cli.pipelines.archive import archive
from amps.cli.pipelines.common import failure_text
from amps.cli.pipelines.queue_report import queue_report
from amps.cli.pipelines.reconcile import reconcile
from amps.cli.pipelines.replay import replay
from amps.cli.pipelines.stats import stats

INTERRUPTED_STATUS = 130
"""The status that shells report for a program that SIGINT ended."""


class PipelineGroup(HelpfulGroup):
    """Reports failures of jobs in one line. After Ctrl-C it stops Spark, then this process ends."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED_STATUS)
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            text = failure_text(error)
            if text is None:
                raise
            tell(text)
            ctx.exit(1)


@click.group(cls=PipelineGroup, example="amps pipeline stats --help")
def pipeline() -> None:
    """Run jobs over journals and servers on Spark, here or on a cluster."""


for subcommand in (archive, replay, queue_report, reconcile, stats):
    pipeline.add_command(subcommand)
