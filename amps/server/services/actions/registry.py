"""All modules of `Do` and `If`, by their names in the configuration."""

from collections.abc import Mapping
from typing import Final

from amps.server.services.actions.clearing_steps import DeleteSow
from amps.server.services.actions.data_steps import (
    Condition,
    EchoMessage,
    ExtractValues,
    FileSystemUsage,
    IncrementCounter,
    PublishMessage,
    TranslateData,
)
from amps.server.services.actions.file_steps import CompressFiles, RemoveFiles
from amps.server.services.actions.replication_steps import (
    DisableProxiedTransfer,
    DowngradeReplication,
    EnableProxiedTransfer,
    UpgradeReplication,
)
from amps.server.services.actions.server_steps import (
    ArchiveJournal,
    CompressJournal,
    DisableAuthentication,
    DisableEntitlement,
    EnableAuthentication,
    EnableEntitlement,
    ExecuteEvent,
    ExecuteSystem,
    Nothing,
    RemoveJournal,
    RotateLogs,
    Shutdown,
)
from amps.server.services.actions.step import Step

STEP_CLASSES: Final[Mapping[str, type[Step]]] = {
    one.module: one
    for one in (
        ArchiveJournal,
        CompressFiles,
        CompressJournal,
        Condition,
        DeleteSow,
        DisableAuthentication,
        DisableEntitlement,
        DisableProxiedTransfer,
        DowngradeReplication,
        EchoMessage,
        EnableAuthentication,
        EnableEntitlement,
        EnableProxiedTransfer,
        ExecuteEvent,
        ExecuteSystem,
        ExtractValues,
        FileSystemUsage,
        IncrementCounter,
        Nothing,
        PublishMessage,
        RemoveFiles,
        RemoveJournal,
        RotateLogs,
        Shutdown,
        TranslateData,
        UpgradeReplication,
    )
}
