"""The text stage: it combines a configuration file and its includes to one text, and keeps the origin of every line.

Steps for each file: read → expand `${NAME}` → check that it is well-formed XML → replace each `Include`
by the file it names, after the same steps. Includes are resolved in the text, not in trees, because
the server shows the expanded text with comments as its configuration (`--dump-config`, the log).

Invariants: one line of the result stems from exactly one line of one file (an included text always starts a
new line), so a finding can name the place to edit. The result never grows beyond the cycle
detection threshold, and no file is included by a file that it includes.
"""

import codecs
import os
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from amps.config.findings import Findings
from amps.config.units import read_boolean, read_size, shown
from amps.version import VERSION

ROOT_NAME = "AMPSConfig"
DEFAULT_THRESHOLD_BYTES = 5 * 2**20
_DEEPEST_INCLUDE = 32

_DECLARATION = re.compile(r"\A\s*<\?xml\b.*?\?>", re.DOTALL)
_ENCODING = re.compile(rb"""\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_VARIABLE = re.compile(r"\$\{([^{}\n]*)\}")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>"
    r"|(?P<include><Include(?P<attributes>(?:\s[^<>]*?)?)(?:/>|>(?P<target>.*?)</Include\s*>))",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """A place in an original file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ExpandedText:
    """The text with variables and includes resolved; `origins[n]` is the origin of line n+1."""

    text: str
    origins: tuple[Origin, ...]
    main_file: str

    def origin(self, line: int | None) -> Origin:
        """Return the origin of a line of the text, counted from 1."""
        if line is None or not self.origins:
            return Origin(self.main_file, 0)
        return self.origins[min(max(line, 1), len(self.origins)) - 1]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One file after variable expansion, before its includes are resolved."""

    path: Path
    text: str
    origins: tuple[Origin, ...]


def new_parser() -> etree.XMLParser:
    """Return a parser that reads only the given text: no network, no DTD, no external entity."""
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def syntax_reason(error: etree.XMLSyntaxError) -> str:
    """Return the parser's message without its line and column, which refer to the internal expanded text."""
    return re.sub(r"(, use XML_PARSE_HUGE option)?\s*, line \d+, column \d+.*", "", str(error.msg))


def expand(
    path: str | os.PathLike[str], defines: Mapping[str, str], findings: Findings, text: str | None
) -> ExpandedText:
    """Read `path` (or use `text` as its content) and resolve variables and includes.

    Raises ConfigError if the text stage fails: there is then no text for further checks.
    """
    return _Expander(Path(path), defines, findings).run(text)


def _include_paths(text: str) -> list[str]:
    """Return the element paths of the includes of one well-formed file, in the order of the text."""
    root = etree.fromstring(text.encode("utf-8", "surrogatepass"), new_parser())
    return [
        "/".join([*(str(outer.tag) for outer in reversed(list(element.iterancestors()))), str(element.tag)])
        for element in root.iter("Include")
    ]


class _Expander:
    """The shared state of the files of one configuration: variables, options, the current size."""

    def __init__(self, main: Path, defines: Mapping[str, str], findings: Findings) -> None:
        self._main = main
        self._findings = findings
        absolute = Path(os.path.abspath(main))
        self._variables: dict[str, str] = dict(os.environ)
        self._variables.update(
            AMPS_CONFIG_DIRECTORY=str(absolute.parent), AMPS_CONFIG_PATH=str(absolute), AMPS_VERSION=VERSION
        )
        self._variables.update(defines)
        self._prepared: dict[Path, _Prepared] = {}
        self._comment_default = False
        self._threshold_bytes = DEFAULT_THRESHOLD_BYTES
        self._size_bytes = 0

    def run(self, text: str | None) -> ExpandedText:
        if text is None:
            text = self._read(self._main, Origin(str(self._main), 0))
        prepared = self._prepare(self._main, text)
        self._findings.raise_if_errors()
        self._read_options(prepared)
        lines = self._resolve(prepared, (self._main.resolve(),), "")
        self._findings.raise_if_errors()
        while lines and not lines[-1][0].strip():
            del lines[-1]
        return ExpandedText(
            "\n".join(line for line, _ in lines) + "\n", tuple(origin for _, origin in lines), str(self._main)
        )

    def _error(self, origin: Origin, text: str, path: str = ROOT_NAME) -> None:
        self._findings.error(origin.file, origin.line, path, text)

    def _fail(self, origin: Origin, text: str, path: str = ROOT_NAME) -> None:
        """Report an error after which reading cannot continue."""
        self._error(origin, text, path)
        self._findings.raise_if_errors()

    def _read(self, path: Path, wanted_at: Origin, element_path: str = ROOT_NAME) -> str:
        """Return the file as text: UTF-8, or the encoding of its XML declaration."""
        try:
            with path.open("rb") as file:
                data = file.read(64 * 2**20)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._fail(
                wanted_at,
                f"cannot read {shown(str(path))}: {reason}; check the path and its permissions",
                element_path,
            )
        declared = _ENCODING.match(data)
        encoding = declared[1].decode("ascii") if declared else "utf-8"
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        elif data.startswith(codecs.BOM_UTF8):
            encoding = "utf-8-sig"
        try:
            return codecs.decode(data, encoding)
        except (LookupError, ValueError) as error:
            self._fail(
                Origin(str(path), 1),
                f"the file cannot be read as {encoding}: {error}; save it as UTF-8, or declare its encoding",
            )
            raise

    def _prepare(self, path: Path, text: str) -> _Prepared:
        """Expand variables and check that the file itself is well-formed."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _DECLARATION.sub(lambda match: "\n" * match[0].count("\n"), text, count=1)
        comments = [match.span() for match in _COMMENT.finditer(text)]
        starts = [start for start, _ in comments]
        lines: list[str] = []
        origins: list[Origin] = []
        offset = 0
        for number, line in enumerate(text.split("\n"), start=1):
            origin = Origin(str(path), number)

            def replaced(match: re.Match[str], base: int = offset, origin: Origin = origin) -> str:
                position = base + match.start()
                index = bisect_right(starts, position) - 1
                in_comment = index >= 0 and position < comments[index][1]
                return self._variable(match, origin, in_comment)

            for part in _VARIABLE.sub(replaced, line).split("\n"):
                lines.append(part)
                origins.append(origin)
            offset += len(line) + 1
        prepared = _Prepared(path, "\n".join(lines), tuple(origins))
        self._check_well_formed(prepared)
        return prepared

    def _variable(self, match: re.Match[str], origin: Origin, in_comment: bool) -> str:
        value = self._variables.get(match[1])
        if value is not None:  # the environment may contain bytes that are not valid text
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if not in_comment:
            self._error(
                origin,
                f"the variable {match[0]} is not defined; set it in the environment, or with -D{match[1]}=",
            )
        return match[0]

    def _check_well_formed(self, prepared: _Prepared) -> None:
        try:
            root = etree.fromstring(prepared.text.encode("utf-8", "surrogatepass"), new_parser())
        except etree.XMLSyntaxError as error:
            line = error.lineno or 1
            origin = prepared.origins[min(line, len(prepared.origins)) - 1]
            self._error(origin, f"not well-formed XML: {syntax_reason(error)}")
            return
        if root.getroottree().docinfo.internalDTD is not None:
            self._error(
                prepared.origins[0],
                "a document type declaration is not accepted; use Include and ${NAME} in place of entities",
            )

    def _read_options(self, prepared: _Prepared) -> None:
        """Read the two options for this stage; they apply only in the main file, outside includes."""
        root = etree.fromstring(prepared.text.encode(), new_parser())
        for name in ("ConfigIncludeCommentDefault", "ConfigCycleDetectionThreshold"):
            element = root.find(name)
            if element is None or not (element.text or "").strip():
                continue
            value = (element.text or "").strip()
            try:
                if name == "ConfigIncludeCommentDefault":
                    self._comment_default = read_boolean(value)
                else:
                    self._threshold_bytes = read_size(value)
            except ValueError:
                continue  # reported by the schema, which reads both again

    def _resolve(
        self, prepared: _Prepared, stack: tuple[Path, ...], outer_path: str
    ) -> list[tuple[str, Origin]]:
        """Return the file's lines with all includes replaced. `outer_path`: the element that includes the file."""
        result: list[tuple[str, Origin]] = []
        position = 0
        paths = iter(_include_paths(prepared.text))
        for token in _TOKEN.finditer(prepared.text):
            if token["include"] is None:
                continue
            self._append(result, prepared, position, token.start())
            position = token.end()
            origin = self._origin_at(prepared, token.start())
            path = outer_path + next(paths, ROOT_NAME + "/Include")
            result += self._included(prepared, token, origin, stack, path)
        self._append(result, prepared, position, len(prepared.text), keep_blank=position == 0)
        return result

    def _origin_at(self, prepared: _Prepared, position: int) -> Origin:
        return prepared.origins[prepared.text.count("\n", 0, position)]

    def _append(
        self,
        result: list[tuple[str, Origin]],
        prepared: _Prepared,
        start: int,
        end: int,
        keep_blank: bool = False,
    ) -> None:
        """Add the lines between two includes, without the blank rest of an include's own line."""
        first = prepared.text.count("\n", 0, start)
        parts = prepared.text[start:end].split("\n")
        for index, part in enumerate(parts):
            at_edge = index in (0, len(parts) - 1)
            if at_edge and not part.strip() and not keep_blank:
                continue
            self._grow(len(part) + 1, prepared.origins[first + index])
            result.append((part, prepared.origins[first + index]))

    def _grow(self, size_bytes: int, origin: Origin) -> None:
        self._size_bytes += size_bytes
        if self._size_bytes > self._threshold_bytes:
            self._fail(
                origin,
                "the expanded configuration is larger than ConfigCycleDetectionThreshold "
                f"({self._threshold_bytes} bytes); look for files that include each other, or raise it",
            )

    def _included(
        self, including: _Prepared, token: re.Match[str], origin: Origin, stack: tuple[Path, ...], path: str
    ) -> list[tuple[str, Origin]]:
        # Imported here, because it imports a client for HTTP, and few configurations have includes.
        from xml.sax.saxutils import unescape

        written = unescape((token["target"] or "").strip())
        if not written:
            self._fail(origin, "Include is empty; write the path of the file to include", path)
        with_comment = self._wants_comment(token["attributes"], origin, path)
        target = self._find(including.path, written)
        resolved = target.resolve()
        if resolved in stack or len(stack) >= _DEEPEST_INCLUDE:
            chain = " → ".join(str(file) for file in (*stack, resolved))
            self._fail(
                origin,
                f"{shown(written)} is included by a file that it includes: {chain}; remove one Include",
                path,
            )
        prepared = self._prepared.get(resolved)
        if prepared is None:
            prepared = self._prepare(target, self._read(target, origin, path))
            self._findings.raise_if_errors()
            self._prepared[resolved] = prepared
        lines = self._resolve(prepared, (*stack, resolved), path.rpartition("/")[0] + "/")
        while lines and not lines[0][0].strip():
            del lines[0]
        while lines and not lines[-1][0].strip():
            del lines[-1]
        if with_comment:
            name = written.replace("--", "- -")
            lines.insert(0, (f"<!-- Start <Include>{name}</Include> -->", origin))
            lines.append((f"<!-- End <Include>{name}</Include> -->", origin))
        return lines

    def _wants_comment(self, attributes: str | None, origin: Origin, path: str) -> bool:
        """Return the `comment` attribute of an Include, or the default."""
        try:
            element = etree.fromstring(f"<Include{attributes or ''}/>".encode(), new_parser())
        except etree.XMLSyntaxError as error:  # a prefix that an outer element declared
            self._error(
                origin,
                f"the attributes cannot be read: {syntax_reason(error)}; Include knows only comment",
                path,
            )
            return False
        for name in element.attrib:
            if name != "comment":
                self._error(origin, f"unknown attribute {shown(str(name))}; Include knows only comment", path)
        value = element.get("comment")
        if value is None:
            return self._comment_default
        try:
            return read_boolean(str(value))
        except ValueError as error:
            self._error(origin, f"attribute comment: {error}", path)
            return False

    @staticmethod
    def _find(including: Path, written: str) -> Path:
        """Return the path of an included file: beside the including file, else in the working directory."""
        beside = including.parent / written
        return beside if beside.exists() or not Path(written).exists() else Path(written)
