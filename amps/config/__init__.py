"""Configuration: from an AMPSConfig file to validated, typed, immutable dataclasses.

The stages, one module each: `text` (variables, includes, origin of every line) → `document` (XML tree) →
`schema` (check against the tables in `elements` and related modules, values read by `units` and `readers`) →
`build` (rules between elements, `model`; the rules of message queues are in `queues`, of SOW topics in `sow`). Each
problem is a `Finding` with file, line and element path; a bad configuration raises only ConfigError.

Most of the package runs once, before the supervisor forks. Pure functions of a configuration are also used at run time,
so that processes agree: `queue_topics` and `sow_topics` (core, transports, services), `queue_events` (core, services)
and `topics` (by `amps.server.topics`). The services process also uses `action_modules`, `schedules` and `web_origins`.

This package reads files and the environment. It starts no process, opens no socket and writes no log.
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
    ServerConfig,
    TlsConfig,
    TransactionLogConfig,
    TransportConfig,
    TuningConfig,
)
from amps.config.model_base import ModuleUse
from amps.config.model_queues import QueueConfig, RecoveryPoint
from amps.config.model_sow import ChainingConfig, History, SowTopicConfig
from amps.config.samples import embedded_default_text, sample_config
from amps.config.schema import Checker
from amps.config.text import expand
from amps.config.units import read_boolean

__all__ = [
    "ActionConfig",
    "ActionModule",
    "AdminConfig",
    "ChainingConfig",
    "ConfigError",
    "Finding",
    "FreeSpaceThreshold",
    "History",
    "LoadedConfig",
    "LogTargetConfig",
    "LoggedTopic",
    "ModuleUse",
    "QueueConfig",
    "RecoveryPoint",
    "ServerConfig",
    "Severity",
    "SowTopicConfig",
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
    """Read and validate a configuration. Raises ConfigError if a server could not start with it.

    `defines` are variables that take precedence over the environment. With `text` the file is not read: `path` is then
    only the name of the text in findings and the base of its includes.
    """
    findings = Findings()
    expanded = expand(path, defines or {}, findings, text)
    root = parse(expanded, findings)
    checker = Checker(findings, strict=_validates(root))
    config = build(checker.section(root, ROOT), checker)
    findings.raise_if_errors()
    assert config is not None  # it is None only after an error
    return LoadedConfig(config, findings.all(), expanded.text, str(path))


def dump(path: str | os.PathLike[str], defines: Mapping[str, str] | None = None) -> str:
    """Return the text with variables and includes resolved, valid or not."""
    return expand(path, defines or {}, Findings(), None).text


def embedded_default(data_directory: Path, port: int = 9007) -> LoadedConfig:
    """Return the default configuration: a local transport, with all topics recorded below a directory."""
    return load("<embedded default>", text=embedded_default_text(data_directory, port))


def _validates(root: Node) -> bool:
    """Whether `ConfigValidation` is enabled. It is read before any check."""
    for child in root.children:
        if child.name == "ConfigValidation":
            return child.text.lower() not in ("disabled", "false")
    return True
