"""The findings about a configuration, each with file, line, element path and a remedy.

Reading does not stop at the first problem: all findings are collected, so that an operator can correct a file in one
round. A finding is always printed as `file:line: severity: element path: text`.
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding. Only an error keeps the server from starting."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `line` counts from 1; 0 if it concerns the whole file."""

    file: str
    line: int
    severity: Severity
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.path}: {self.text}"


class ConfigError(Exception):
    """A server cannot start with the configuration. `findings` has all findings, including warnings."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        errors = [str(finding) for finding in findings if finding.severity is Severity.ERROR]
        super().__init__("\n".join(errors))


class Findings:
    """Collects findings while a configuration is read."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    def add(self, severity: Severity, file: str, line: int, path: str, text: str) -> None:
        """Add one finding; its text is kept on one line."""
        finding = Finding(file, line, severity, path, " ".join(text.split()))
        if finding not in self._found:
            self._found.append(finding)

    def error(self, file: str, line: int, path: str, text: str) -> None:
        """Add an error, which keeps the server from starting."""
        self.add(Severity.ERROR, file, line, path, text)

    @property
    def has_errors(self) -> bool:
        """Whether any finding so far is an error."""
        return any(finding.severity is Severity.ERROR for finding in self._found)

    def all(self) -> tuple[Finding, ...]:
        """Return all findings, in the order of the text within each file."""
        return tuple(sorted(self._found, key=lambda finding: (finding.file, finding.line)))

    def raise_if_errors(self) -> None:
        """Raise ConfigError with all findings if one of them is an error."""
        if self.has_errors:
            raise ConfigError(self.all())
