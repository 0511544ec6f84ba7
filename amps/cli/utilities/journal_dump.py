"""`amps_journal_dump`: the complete content of a journal, as text."""

from pathlib import Path
from typing import Any

import click

from amps._core.journal.search import NO_LIMIT, RecordSearch
from amps.cli.utilities.common import SETTINGS, UtilityCommand, reading_progress, version_option, writer
from amps.journal.entries import JournalFile
from amps.journal.layout import SEPARATOR, entry_text, extents_text, footer_text, header_text


class EntryRange(click.ParamType[tuple[int, int]]):
    """`N:M` (entries N to M) or `M` (the first M), as first number and the number after the last."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        first, colon, last = str(value).partition(":")
        numbers = [first, last] if colon else [first]
        if not all(number.isascii() and number.isdigit() for number in numbers):
            self.fail(f"{value!r} is neither N:M nor M", param, ctx)
        if not colon:
            return 0, min(int(first), NO_LIMIT)
        return min(int(first), NO_LIMIT), min(int(last) + 1, NO_LIMIT)


@click.command(
    cls=UtilityCommand,
    context_settings=SETTINGS,
    example="amps_journal_dump -l 10 ./amps-data/journal/AMPS.0000000000.journal",
)
@click.argument("filename", type=click.Path(path_type=Path))
@click.option(
    "-l",
    "limit",
    type=EntryRange(),
    metavar="LIMIT",
    help="N:M shows entries N to M (the first one is 0), M alone the first M.",
)
@click.option(
    "--localtime", is_flag=True, help="Show times in the time zone of TZ or the system, not in UTC."
)
@click.option("--extents", is_flag=True, help="Add local and replication extents at the end.")
@click.option("--no-data", is_flag=True, help="Leave the payloads out.")
@click.option("--include-noops", is_flag=True, help="Show no-op records too.")
@version_option
def main(
    filename: Path,
    limit: tuple[int, int] | None,
    localtime: bool,
    extents: bool,
    no_data: bool,
    include_noops: bool,
) -> None:
    """Show the header, the entries and the sums of a journal, compressed or not.

    Changes nothing. If the journal is damaged, the entries before the damage are shown and the exit status is 1.
    """
    first, end = limit or (0, NO_LIMIT)
    write = writer()
    with reading_progress(filename) as progress, JournalFile(filename, progress=progress) as file:
        survey, damage = file.survey()
        write(header_text(file, survey, local=localtime))
        search = RecordSearch(
            first_number=first, end_number=min(end, survey.entry_count), include_noops=include_noops
        )
        for entry in file.entries(search, with_payload=not no_data):
            write(SEPARATOR + entry_text(entry, local=localtime, with_data=not no_data))
        write(SEPARATOR + footer_text(file, survey))
        if extents:
            write(extents_text(survey))
        if damage is not None:
            raise damage


if __name__ == "__main__":
    main()
