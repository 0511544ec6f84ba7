"""What there is to say about a configuration: findings with file, line, element path and a remedy.

Reading never stops at the first problem: it collects, so that an operator mends a file in one round. The
one form in which a finding is printed is `file:line: severity: element path: text`.
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Only an error keeps the server from starting."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark. `line` counts from 1; 0 when it concerns the file as a whole."""

    file: str
    line: int
    severity: Severity
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.path}: {self.text}"


class ConfigError(Exception):
    """The configuration cannot be started. `findings` holds everything found, the harmless included."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        errors = [str(finding) for finding in findings if finding.severity is Severity.ERROR]
        super().__init__("\n".join(errors))


class Findings:
    """Collects findings while a configuration is read."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    def add(self, severity: Severity, file: str, line: int, path: str, text: str) -> None:
        """Notes one finding; its text is kept on one line."""
        finding = Finding(file, line, severity, path, " ".join(text.split()))
        if finding not in self._found:
            self._found.append(finding)

    def error(self, file: str, line: int, path: str, text: str) -> None:
        """Notes something that keeps the server from starting."""
        self.add(Severity.ERROR, file, line, path, text)

    @property
    def has_errors(self) -> bool:
        """Whether anything found so far keeps the server from starting."""
        return any(finding.severity is Severity.ERROR for finding in self._found)

    def all(self) -> tuple[Finding, ...]:
        """Everything found, in the order of the text within each file."""
        return tuple(sorted(self._found, key=lambda finding: (finding.file, finding.line)))

    def raise_if_errors(self) -> None:
        """Raises ConfigError with all findings when one of them is an error."""
        if self.has_errors:
            raise ConfigError(self.all())
