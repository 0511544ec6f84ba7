"""`amps-grep`: find records of event logs and entries of journals."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from amps._core.journal.reader import MAGIC, LogDamaged
from amps.cli.failures import describe, tell
from amps.cli.utilities.common import (
    SETTINGS,
    UtilityCommand,
    reading_progress,
    version_option,
    writer,
)
from amps.journal.entries import JournalFile, Survey
from amps.journal.grep import Query, text_records
from amps.journal.layout import SEPARATOR, entry_text, header_text
from amps.journal.names import COMPRESSED_SUFFIX, JOURNAL_SUFFIX
from amps.journal.opening import READ_ERRORS, Stream, uncompressed

NOTHING_FOUND = 1
FAILED = 2
STDIN = Path("-")


class GrepCommand(UtilityCommand):
    """A command with the exit status of grep on failure."""

    failure_status = FAILED


class Grep:
    """One search over several files."""

    def __init__(
        self,
        query: Query,
        write: Callable[[bytes], object],
        *,
        line_numbers: bool,
        no_data: bool,
        noops: bool,
    ) -> None:
        self._query = query
        self._write = write
        self._line_numbers = line_numbers
        self._no_data = no_data
        self._noops = noops
        self.found = False

    def search(self, path: Path | None, name_in_logs: bool, name_in_journals: bool) -> None:
        """Search one file, or standard input. Raises OSError, LogDamaged."""
        with contextlib.ExitStack() as stack:
            progress = stack.enter_context(reading_progress(path)) if path is not None else None
            name = "(standard input)" if path is None else str(path)
            raw: Stream = sys.stdin.buffer if path is None else stack.enter_context(path.open("rb"))  # type: ignore[assignment]
            stream = uncompressed(raw)
            try:
                # A file with the name of a journal must be one: report its fault.
                called = path is not None and path.name.endswith((JOURNAL_SUFFIX, COMPRESSED_SUFFIX))
                is_journal = called or stream.peek(len(MAGIC))[: len(MAGIC)] == MAGIC
                if not is_journal:
                    self._search_text(stream, name if name_in_logs else "")
            except READ_ERRORS as error:
                raise LogDamaged(
                    name, raw.tell() if path else 0, f"it cannot be uncompressed: {error}"
                ) from error
            if is_journal:
                given = stream if path is None else None
                with JournalFile(path, given, progress) as file:
                    self._search_journal(file, name if name_in_journals else "")

    def _search_text(self, stream: Stream, name: str) -> None:
        for record in text_records(stream):
            if self._query.finds_text(record.text):
                self.found = True
                self._put(record.text, name, record.line_number)

    def _search_journal(self, file: JournalFile, name: str) -> None:
        query, no_data = self._query, self._no_data
        publishers = query.publishers(file.instance_name)
        search = query.search(publishers, include_noops=self._noops)
        header_shown = False
        for entry in file.entries(search):
            text = entry_text(entry)
            if not query.finds_entry(entry, text, publishers):
                continue
            if not header_shown:
                self._put(header_text(file, _survey(file)), name, 0)
                header_shown = self.found = True
            shown = entry_text(entry, with_data=False) if no_data else text
            self._put(SEPARATOR + shown, name, 0)

    def _put(self, text: bytes, name: str, line_number: int) -> None:
        """Write a record, each line with the requested name and number; journals have no line numbers."""
        if not text.endswith(b"\n"):
            text += b"\n"
        prefix = f"{name}:".encode("utf-8", "surrogateescape") if name else b""
        if not prefix and not (line_number and self._line_numbers):
            self._write(text)
            return
        for number, line in enumerate(text.splitlines(keepends=True), line_number):
            counted = b"%d:" % number if line_number and self._line_numbers else b""
            self._write(prefix + counted + line)


def _survey(file: JournalFile) -> Survey | None:
    """Return the extents for the header of a journal with a match, read separately; None for a stream."""
    if file.path is None:
        return None
    with JournalFile(file.path) as whole:
        return whole.survey()[0]


def _terms(search_terms: Sequence[str], term_files: Sequence[Path]) -> list[bytes]:
    terms = [term.encode("utf-8", "surrogateescape") for term in search_terms]
    for path in term_files:
        terms += [line for line in path.read_bytes().splitlines() if line]
    return terms


def _each(files: Sequence[Path]) -> Iterator[Path | None]:
    for path in files or (STDIN,):
        yield None if path == STDIN else path


@click.command(
    cls=GrepCommand,
    context_settings={**SETTINGS, "help_option_names": ["--help"]},
    example="amps-grep --client=desk-7-publisher --no-data ./amps-data/journal/*.journal",
)
@click.argument("arguments", metavar="[TERM] [FILES]...", nargs=-1)
@click.option(
    "-e",
    "--search_term",
    "search_terms",
    multiple=True,
    metavar="TERM",
    help="Find this exact text. Repeatable.",
)
@click.option(
    "-f",
    "--file",
    "term_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Find the exact texts in FILE, one per line.",
)
@click.option(
    "-E",
    "--extended_regex",
    "expressions",
    multiple=True,
    metavar="RE",
    help="Find this regular expression (of Python's re). Repeatable.",
)
@click.option("-n", "--line-number", "line_numbers", is_flag=True, help="Show line numbers (of event logs).")
@click.option("-H", "--with-filename", "with_names", is_flag=True, help="Show the file's name on each line.")
@click.option(
    "-h", "--no-filename", "without_names", is_flag=True, help="Never show the file's name on lines."
)
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("-v", "--invert-match", is_flag=True, help="Show the records that do not match.")
@click.option("--no-data", is_flag=True, help="Leave the payloads of journals out.")
@click.option("--include-noops", is_flag=True, help="Search no-op records of journals too.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="CLIENT",
    help="Only records of this client, given by name or hash. Repeatable.",
)
@version_option
@click.pass_context
def main(
    context: click.Context,
    arguments: tuple[str, ...],
    search_terms: tuple[str, ...],
    term_files: tuple[Path, ...],
    expressions: tuple[str, ...],
    line_numbers: bool,
    with_names: bool,
    without_names: bool,
    ignore_case: bool,
    invert_match: bool,
    no_data: bool,
    include_noops: bool,
    clients: tuple[str, ...],
) -> None:
    """Find whole records of event logs, with all their lines, and of journals, compressed or not. Without FILES, search
    standard input.

    TERM is an exact text, unless -e, -f, -E or --client is given. If several terms are given, one must match. In
    journals, a text that could be part of a label is searched for in the values only. Exit status 0 if
    something was found, 1 if not, 2 if a file cannot be read or is damaged.
    """
    files = list(arguments)
    if not (search_terms or term_files or expressions or clients):
        if not files:
            raise click.UsageError("give a search term: TERM, -e, -f, -E or --client")
        search_terms = (files.pop(0),)
    try:
        query = Query(_terms(search_terms, term_files), expressions, clients, ignore_case, invert_match)
    except re.error as error:
        raise click.UsageError(f"{error.pattern!r} is no regular expression: {error}") from None
    grep = Grep(query, writer(), line_numbers=line_numbers, no_data=no_data, noops=include_noops)
    paths = list(_each([Path(file) for file in files]))
    failed = False
    for path in paths:
        try:
            grep.search(
                path, not without_names and (with_names or len(paths) > 1), with_names and not without_names
            )
        except BrokenPipeError:
            raise
        except (OSError, LogDamaged) as error:
            sys.stdout.flush()
            tell(describe(error))
            failed = True
    context.exit(FAILED if failed else 0 if grep.found else NOTHING_FOUND)


if __name__ == "__main__":
    main()
