"""Loading parts of a configuration in tests."""

import pytest

from amps.config import (
    ConfigError,
    LoadedConfig,
    Severity,
    load,
)

TCP = "<Transport><Name>t</Name><Type>tcp</Type><InetAddr>9007</InetAddr>{}</Transport>"


def read(inner: str, name: str = "<Name>n</Name>") -> LoadedConfig:
    return load("c.xml", text=f"<AMPSConfig>\n{name}\n{inner}\n</AMPSConfig>")


def errors_of(inner: str, name: str = "<Name>n</Name>") -> list[str]:
    """The error findings, without file and line."""
    with pytest.raises(ConfigError) as refusal:
        read(inner, name)
    return [
        f"{finding.path}: {finding.text}"
        for finding in refusal.value.findings
        if finding.severity is Severity.ERROR
    ]


def warnings_of(loaded: LoadedConfig) -> list[str]:
    return [finding.text for finding in loaded.findings if finding.severity is Severity.WARNING]
