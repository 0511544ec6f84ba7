"""`ampserr`: explain an id of the event log, or the reason of a failure."""

import json

import click
from click.shell_completion import CompletionItem

from amps.cli.explain.catalogue import Explanation, everything, find, is_id, near
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
@option("output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Text or JSON.")
@click.version_option(VERSION, "-version", "--version", message="ampserr %(version)s")
@click.pass_context
def main(context: click.Context, words: tuple[str, ...], lists: bool, output: str) -> None:
    """Explain messages of the server: text, level, likely cause, and what to do.

    ID is the id of a record of the event log (07-0013); a whole record is accepted, too. REASON is the reason of a
    refused command or of an ended connection (bad filter). Several ids are explained one after the other. The exit
    status is 1 if one of them is unknown.
    """
    if lists == bool(words):
        raise click.UsageError("give an id or a reason, or --list")
    if lists:
        write(everything(), output, short=True)
        return
    whole = " ".join(words)
    several = find(whole) is None and all(find(word) or is_id(word) for word in words)
    found, unknown = [], []
    for text in words if several else [whole]:
        explanation = find(text)
        if explanation is None:
            unknown.append(text)
        else:
            found.append(explanation)
    write(found, output, short=False)
    for text in unknown:
        similar = near(text)
        hint = f"; near matches: {', '.join(similar)}" if similar else "; 'ampserr --list' lists all"
        click.echo(f"error: there is no explanation of {text!r}{hint}", err=True)
    if unknown:
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
    for number, each in enumerate(found):
        if number:
            click.echo()
        click.echo(f"{each.name}  ({each.kind})")
        if each.text != each.name:
            click.echo(_section("Text", each.text))
        click.echo(_section("Cause", each.advice.cause))
        click.echo(_section("Remedy", each.advice.remedy))


def _section(title: str, text: str) -> str:
    return click.wrap_text(
        text, 100, initial_indent=f"  {title + ':':8}", subsequent_indent=" " * 10, preserve_paragraphs=False
    )


if __name__ == "__main__":
    main(prog_name="ampserr")
