"""`ampserr`: explain an id of the event log, or the reason of a failure (operations.md §11)."""

import json

import click
from click.shell_completion import CompletionItem

from amps.cli.explain.catalogue import Explanation, everything, look_up, near
from amps.cli.options import HelpfulCommand, option
from amps.version import VERSION


class ErrorName(click.ParamType[str]):
    """An id or a reason."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(found.name, help=found.text)
            for found in everything()
            if found.name.lower().startswith(incomplete.lower())
        ]


@click.command(
    cls=HelpfulCommand,
    example="ampserr 07-0013",
    context_settings={"help_option_names": ["-h", "--help", "-help"], "max_content_width": 110},
)
@click.argument("words", metavar="[ID|REASON]...", nargs=-1, type=ErrorName())
@option("list", "lists", is_flag=True, help="List all ids and reasons, one per line.")
@option(
    "output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Text or JSON."
)
@click.version_option(VERSION, "-version", "--version", message="ampserr %(version)s")
@click.pass_context
def main(context: click.Context, words: tuple[str, ...], lists: bool, output: str) -> None:
    """Explain messages of the server: text, level, likely cause, and what to do.

    ID is the id of a record of the event log (07-0013), a whole record, or a regular expression for ids (00- for a
    category). REASON is the reason of a refused command or of an ended connection (bad filter). The exit status is 1
    if nothing is found.
    """
    if lists == bool(words):
        raise click.UsageError("give an id or a reason, or --list")
    if lists:
        write(everything(), output, short=True)
        return
    whole = " ".join(words)
    # Several ids, or the words of one reason.
    patterns = [whole] if look_up(whole) or not all(map(look_up, words)) else list(words)
    for pattern in patterns:
        found = look_up(pattern)
        if found:
            write(found, output, short=False)
            if output == "text":
                click.echo(f"Found {len(found)} error{'s' if len(found) > 1 else ''} matching '{pattern}'.")
            continue
        similar = near(pattern)
        hint = f"; near matches: {', '.join(similar)}" if similar else "; 'ampserr --list' lists all"
        click.echo(f"error: there is no explanation of {pattern!r}{hint}", err=True)
        context.exit(1)


def write(found: list[Explanation], output: str, *, short: bool) -> None:
    """Write explanations. `short`: one line each."""
    if output == "json":
        click.echo(
            json.dumps(
                [
                    {
                        "name": each.name, "kind": each.kind, "text": each.text,
                        "cause": each.advice.cause, "remedy": each.advice.remedy,
                    }
                    for each in found
                ],
                ensure_ascii=False,
            )
        )  # fmt: skip
        return
    if short:
        for each in found:
            if each.text == each.name:
                click.echo(f"{each.name}: {each.advice.cause}")
            else:
                click.echo(f"{each.name}  {each.kind:8}  {' '.join(each.text.split())}")
        return
    for each in found:
        if each.text == each.name:
            click.echo(f"AMPS Reason {each.name} [{each.kind}]")
            description = each.advice.cause
        else:
            click.echo(f"AMPS Message {each.name} [level = {each.kind}]")
            description = f"{each.text}\n\n{each.advice.cause}"
        click.echo(_paragraphs("DESCRIPTION:", description))
        click.echo(_paragraphs("ACTION:", each.advice.remedy))
        click.echo()


def _paragraphs(title: str, text: str) -> str:
    """An indented title and below it the text, in the form of the documented output (operations.md §11)."""
    paragraphs = [
        click.wrap_text(" ".join(part.split()), 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
        for part in text.split("\n\n")
    ]
    return f"    {title}\n" + "\n".join(paragraphs)


if __name__ == "__main__":
    main(prog_name="ampserr")
