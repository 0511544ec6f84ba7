"""Configuration: from an AMPSConfig file to validated, typed, immutable dataclasses.

The stages, one module each: `text` (variables, includes, origin of every line) → `document` (XML tree) →
`schema` (check against the tables in `elements` and its neighbours, values read by `units` and `readers`) →
`build` (rules between elements, `model`; those of message queues in `queues`). Everything there is to complain about
is a `Finding` with file, line and element path; nothing but ConfigError is raised for a bad configuration.

This package reads files and the environment. It starts nothing, binds nothing and logs nothing.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from amps.config.build import build
from amps.config.document import Node, parse
from amps.config.elements import ROOT
from amps.config.findings import ConfigError, Finding, Findings, Severity
from amps.config.model import (
    ActionConfig,
    ActionModule,
    AdminConfig,
    FreeSpaceThreshold,
    LoadedConfig,
    LoggedTopic,
    LogTargetConfig,
    ModuleUse,
    ServerConfig,
    TlsConfig,
    TransactionLogConfig,
    TransportConfig,
    TuningConfig,
)
from amps.config.model_queues import QueueConfig, RecoveryPoint
from amps.config.samples import embedded_default_text, sample_config
from amps.config.schema import Checker
from amps.config.text import expand
from amps.config.units import read_boolean

__all__ = [
    "ActionConfig",
    "ActionModule",
    "AdminConfig",
    "ConfigError",
    "Finding",
    "FreeSpaceThreshold",
    "LoadedConfig",
    "LogTargetConfig",
    "LoggedTopic",
    "ModuleUse",
    "QueueConfig",
    "RecoveryPoint",
    "ServerConfig",
    "Severity",
    "TlsConfig",
    "TransactionLogConfig",
    "TransportConfig",
    "TuningConfig",
    "dump",
    "embedded_default",
    "load",
    "read_boolean",
    "sample_config",
]


def load(
    path: str | os.PathLike[str], defines: Mapping[str, str] | None = None, *, text: str | None = None
) -> LoadedConfig:
    """Reads and validates a configuration; raises ConfigError when it could not be started.

    `defines` are variables that win over the environment. With `text` the file is not read: `path` then
    only names the text in findings and locates its includes.
    """
    findings = Findings()
    expanded = expand(path, defines or {}, findings, text)
    root = parse(expanded, findings)
    checker = Checker(findings, strict=_validates(root))
    config = build(checker.section(root, ROOT), checker)
    findings.raise_if_errors()
    assert config is not None  # without a name there was an error
    return LoadedConfig(config, findings.all(), expanded.text, str(path))


def dump(path: str | os.PathLike[str], defines: Mapping[str, str] | None = None) -> str:
    """The text with variables and includes resolved, whether or not it would be valid."""
    return expand(path, defines or {}, Findings(), None).text


def embedded_default(data_directory: Path, port: int = 9007) -> LoadedConfig:
    """What runs without a configuration file: a local transport, everything recorded below a directory."""
    return load("<embedded default>", text=embedded_default_text(data_directory, port))


def _validates(root: Node) -> bool:
    """Whether `ConfigValidation` is enabled, which has to be known before anything is checked."""
    for child in root.children:
        if child.name == "ConfigValidation":
            return child.text.lower() not in ("disabled", "false")
    return True
