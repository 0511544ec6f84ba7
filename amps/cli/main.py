"""Entry point of the `amps` command."""

import os
from typing import Any

import click

from amps.cli.completion import completion
from amps.cli.context import context
from amps.cli.demo.command import demo
from amps.cli.failures import describe, tell, tell_system_error
from amps.cli.journal import journal
from amps.cli.options import HelpfulCommand, write_example
from amps.cli.ping import ping
from amps.cli.pipelines.group import pipeline
from amps.cli.publish import publish
from amps.cli.serve import serve
from amps.cli.sow import sow, sow_and_subscribe, sow_delete
from amps.cli.storage_test import storage_test
from amps.cli.subscribe import subscribe
from amps.cli.top.command import top
from amps.client.errors import AMPSException
from amps.version import VERSION

JAVA_OPTIONS_VARIABLE = "AMPS_SPARK_OPTS"


class AmpsGroup(click.Group):
    """The group of all commands: without a command it shows the banner and the commands; failures take one line."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"amps {VERSION}: an open messaging server and its command-line client\n")
        self.format_usage(ctx, formatter)
        self.format_options(ctx, formatter)
        write_example(formatter, "amps help publish")

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get(JAVA_OPTIONS_VARIABLE):
            click.echo(f"note: {JAVA_OPTIONS_VARIABLE} is ignored; use -ca-file, -cert and -key", err=True)
        try:
            return super().invoke(ctx)
        except AMPSException as error:
            tell(describe(error))
        except BrokenPipeError:
            raise  # the reader of the output has ended: click ends quietly
        except OSError as error:
            tell_system_error(error)
        return ctx.exit(1)


@click.group(cls=AmpsGroup, invoke_without_command=True, context_settings={"max_content_width": 110})
@click.version_option(VERSION, "-version", "--version", message="amps %(version)s")
@click.pass_context
def amps(context: click.Context) -> None:
    """Commands take options with one dash or two."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@amps.command("help", cls=HelpfulCommand, example="amps help publish")
@click.argument("command", required=False)
@click.pass_context
def show_help(context: click.Context, command: str | None) -> None:
    """Show the commands, or the help of one of them."""
    assert context.parent is not None
    if command is None:
        click.echo(context.parent.get_help())
        return
    found = amps.get_command(context, command)
    if found is None:
        raise click.UsageError(
            f"there is no command {command!r}; there are {', '.join(sorted(amps.commands))}"
        )
    with click.Context(found, info_name=command, parent=context.parent) as its_context:
        click.echo(found.get_help(its_context))


for subcommand in (
    serve, publish, subscribe, sow, sow_and_subscribe, sow_delete, ping, context, completion, demo, journal,
    storage_test, pipeline, top,
):  # fmt: skip
    amps.add_command(subcommand)


def main() -> None:
    """Console script."""
    amps.main(prog_name="amps")


if __name__ == "__main__":
    main()
