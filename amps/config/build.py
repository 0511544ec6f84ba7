"""Conversion of a checked tree to the dataclasses: computed defaults, and rules between elements.

Building continues after errors, so that all of them are reported at once: a part that cannot be built is left
out, and the caller discards the result if there was an error.
"""

import re
import resource
from collections.abc import Mapping
from pathlib import Path

import psutil

from amps.config.actions import ActionReader
from amps.config.admin import read_admin
from amps.config.definitions import check_names, definitions
from amps.config.document import Node
from amps.config.elements import LEVELS
from amps.config.findings import Severity
from amps.config.functions import read_functions
from amps.config.message_types import check_message_type, read_message_types
from amps.config.model import (
    DEFAULT_FREE_SPACE,
    REPLICATION_TYPES,
    AdminConfig,
    LoggedTopic,
    LogTargetConfig,
    ServerConfig,
    TransactionLogConfig,
    TransportConfig,
    TuningConfig,
)
from amps.config.model_base import ModuleUse
from amps.config.modules import (
    AUTHENTICATION_MODULES,
    ENTITLEMENT_MODULES,
    DeclaredModule,
    declared_modules,
    resolve_use,
)
from amps.config.queues import QueueReader
from amps.config.readers import read_pattern
from amps.config.replication import (
    DestinationReader,
    Surroundings,
    read_authenticator,
    read_min_sync_destinations,
)
from amps.config.schema import Checker, Section
from amps.config.sow import SowTopicReader
from amps.config.tls import read_tls
from amps.config.units import shown
from amps.expressions import ExpressionError, Functions, compile_expression
from amps.messages import TypeSettings
from amps.topic_expressions import has_regex_characters

COMPATIBLE_RELEASE = (5, 3, 4)
"""The release whose documented behaviour this server has; the minimum version elements are compared with it."""

MEBIBYTE = 2**20
_LONGEST_SOCKET_PATH_BYTES = 107
_NOT_OF_REPLICATION = (
    "Protocol",
    "MessageType",
    "MessageMemoryLimit",
    "ClientMessageAgeLimit",
    "ClientMaxCapacity",
)
"""Elements of transports that mean nothing for connections of instances (replication.md §4, 25.11)."""
_PROTOCOLS_LATER = ("websocket", "fix", "nvfix", "xml", "soap", "fix-session")


def build(root: Section, checker: Checker) -> ServerConfig | None:
    """Return the configuration; None if the instance has no name."""
    _check_versions(root, checker)
    name = root.first("Name")
    if name is not None:
        _check_name(name, root.where("Name"), checker)
    elif checker.strict:
        return None
    name = name or "AMPS"
    declared = declared_modules(root.first("Modules"), checker)
    message_types = read_message_types(root.first("MessageTypes"), checker)
    functions = read_functions(root.first("UserDefinedFunctions"), declared, checker)
    regex_topic_support = root.first("RegexTopicSupport")
    all_transports = _transports(root, message_types, declared, checker)
    transports = tuple(transport for transport in all_transports if not transport.is_replication)
    incoming = _replication_transport(root, all_transports, checker)
    log = _transaction_log(
        root.first("TransactionLog"), message_types, functions, regex_topic_support, checker
    )
    group = root.first("Group") or name
    replication = root.first("Replication")
    replicates = incoming is not None or (replication is not None and replication.has("Destination"))
    defined = definitions(root.first("SOW"))
    check_names(defined, checker)
    queues = QueueReader(
        root, defined, name, group, replicates, log, message_types, functions, checker
    ).read()
    sow_topics = SowTopicReader(
        defined, log, regex_topic_support, message_types, functions, declared, checker
    ).read()
    surroundings = Surroundings(log, queues, message_types, functions, declared)
    destinations = DestinationReader(root, surroundings, incoming, checker).read()
    return ServerConfig(
        name=name,
        group=group,
        process_name=root.first("ProcessName"),
        description=root.first("Description"),
        environment=root.first("Environment"),
        transports=transports,
        transaction_log=log,
        logging=_log_targets(root.first("Logging"), checker),
        authentication=_authentication(root, declared, checker),
        entitlement=_entitlement(root, declared, checker),
        regex_topic_support=regex_topic_support,
        message_types=message_types,
        functions=functions,
        message_memory_limit_bytes=root.first("MessageMemoryLimit") or default_message_memory_limit_bytes(),
        client_max_capacity=root.first("ClientMaxCapacity"),
        client_message_age_limit_s=root.first("ClientMessageAgeLimit"),
        tuning=_tuning(root.first("Tuning")),
        queues=queues,
        sow_topics=sow_topics,
        actions=ActionReader(
            root, message_types, functions, checker, queues, bool(destinations), incoming is not None, sow_topics
        ).read(),
        admin=_admin(root.first("Admin"), all_transports, declared, checker),
        destinations=destinations,
        replication_transport=incoming,
        authenticator=read_authenticator(root, declared, destinations, checker),
        min_sync_destinations=read_min_sync_destinations(root, destinations, checker),
    )


def default_journal_cache_bytes() -> int:
    """Return a tenth of the host's memory, at most 10 GB (transaction_log.md §2)."""
    return int(min(psutil.virtual_memory().total // 10, 10 * 2**30))


def default_message_memory_limit_bytes() -> int:
    """Return the lower of a tenth of the host's memory and a tenth of `ulimit -m`."""
    total_bytes = psutil.virtual_memory().total
    soft_bytes, _ = resource.getrlimit(resource.RLIMIT_RSS)
    if soft_bytes != resource.RLIM_INFINITY:
        total_bytes = min(total_bytes, soft_bytes)
    return max(total_bytes // 10, MEBIBYTE)


def _check_versions(root: Section, checker: Checker) -> None:
    ours = ".".join(str(number) for number in COMPATIBLE_RELEASE)
    for name, severity in (
        ("RequiredMinimumVersion", Severity.ERROR),
        ("SuggestedMinimumVersion", Severity.WARNING),
    ):
        wanted = root.first(name)
        if wanted is not None and wanted > COMPATIBLE_RELEASE and wanted[:3] != COMPATIBLE_RELEASE:
            text = f"this server has the behaviour of release {ours}; upgrade it, or lower {name}"
            checker.note(root.where(name), severity, text)


def _check_name(name: str, node: Node, checker: Checker) -> None:
    if "/" in name or "\n" in name or len(name.encode()) > 200:
        checker.error(
            node,
            f"{shown(name)} cannot begin the name of a file; leave out / and line breaks, and keep it short",
        )
    elif re.search(r"[\s\\$~]", name):
        checker.note(
            node,
            Severity.WARNING,
            f"{shown(name)} holds white space or one of \\ $ ~; a plain word is safer in file names",
        )


def _authentication(
    section: Section, declared: dict[str, DeclaredModule], checker: Checker
) -> ModuleUse | None:
    return resolve_use(
        section.first("Authentication"), "authentication", AUTHENTICATION_MODULES, declared, checker
    )


def _entitlement(section: Section, declared: dict[str, DeclaredModule], checker: Checker) -> ModuleUse | None:
    return resolve_use(section.first("Entitlement"), "entitlement", ENTITLEMENT_MODULES, declared, checker)


def _admin(
    section: Section | None,
    transports: tuple[TransportConfig, ...],
    declared: dict[str, DeclaredModule],
    checker: Checker,
) -> AdminConfig | None:
    if section is None:
        return None
    authentication = _authentication(section, declared, checker)
    entitlement = _entitlement(section, declared, checker)
    return read_admin(section, authentication, entitlement, transports, checker)


def _transports(
    root: Section,
    message_types: Mapping[str, TypeSettings],
    declared: dict[str, DeclaredModule],
    checker: Checker,
) -> tuple[TransportConfig, ...]:
    protocols = _protocols(root.first("Protocols"), checker)
    admin, container = root.first("Admin"), root.first("Transports")
    of_console = admin.first("SQLTransport") if admin is not None else None
    transports: list[TransportConfig] = []
    for section in container.all("Transport") if container is not None else []:
        if section.first("Type") not in REPLICATION_TYPES:
            check_message_type(section, message_types, checker)
        is_of_console = of_console is not None and section.first("Name") == of_console
        if not _has_known_protocol(section, protocols, is_of_console, checker):
            continue
        transport = _transport(section, declared, checker)
        if transport is None:
            continue
        for other in transports:
            if other.name == transport.name:
                checker.error(
                    section.where("Name"),
                    f"two transports are called {shown(other.name)}; give each its own name",
                )
            if _same_address(other, transport):
                where = section.where("FileName" if transport.file_name else "InetAddr")
                checker.error(
                    where,
                    f"the transport {shown(other.name)} has the address {other.address}; give each its own",
                )
        transports.append(transport)
    return tuple(transports)


def _replication_transport(
    root: Section, transports: tuple[TransportConfig, ...], checker: Checker
) -> TransportConfig | None:
    """Return the transport that accepts other instances; there is at most one (replication.md §4)."""
    container = root.first("Transports")
    incoming = [transport for transport in transports if transport.is_replication]
    sections = container.all("Transport") if container is not None else []
    of_replication = [section for section in sections if section.first("Type") in REPLICATION_TYPES]
    for section in of_replication[1:]:
        checker.error(
            section.node,
            "there is already a transport for replication, which serves any number of instances; remove one of them",
        )
    for section in of_replication:
        for name in _NOT_OF_REPLICATION:
            if section.nodes.get(name):
                checker.note(
                    section.where(name),
                    Severity.INFO,
                    f"has no effect: replication transports have no {name}",
                )
    if of_replication and root.first("TransactionLog") is None:
        checker.error(
            of_replication[0].node,
            "an instance keeps what others send in its transaction log; add TransactionLog, or remove this transport",
        )
    return incoming[0] if incoming else None


def _protocols(section: Section | None, checker: Checker) -> dict[str, str]:
    """Return the module of each protocol, by the protocol's name."""
    modules = {"amps": "amps", "json": "amps"} | {name: name for name in _PROTOCOLS_LATER}
    for protocol in section.all("Protocol") if section is not None else []:
        name, module = protocol.first("Name"), protocol.first("Module")
        if name is None or module is None:
            continue
        if module in _PROTOCOLS_LATER:
            checker.note(
                protocol.where("Module"),
                Severity.WARNING,
                f"the protocol {module} is not supported yet; no transport can use this one",
            )
        elif module != "amps":
            checker.error(protocol.where("Module"), f"unknown protocol module {shown(module)}; write amps")
            module = "amps"  # a transport that uses it needs no second error
        modules[name] = module
    return modules


def _has_known_protocol(
    section: Section, modules: Mapping[str, str], is_of_console: bool, checker: Checker
) -> bool:
    """Check a transport's protocol; return False if the transport is left out, because only the web console uses it."""
    if section.first("Type") in REPLICATION_TYPES:
        return True
    node = section.where("Protocol")
    module = modules.get(section.first("Protocol"))
    if module == "websocket" and is_of_console:
        checker.note(
            node,
            Severity.WARNING,
            "this transport is left out: SQLTransport names it for the web console, and neither the console nor the "
            "websocket protocol is supported",
        )
        return False
    if module is None:
        checker.error(
            node,
            f"unknown protocol {shown(section.first('Protocol'))}; write amps, or the Name of a Protocols/Protocol",
        )
    elif module != "amps":
        checker.not_yet(node, f"the protocol {module}")
    return True


def _transport(
    section: Section, declared: dict[str, DeclaredModule], checker: Checker
) -> TransportConfig | None:
    authentication = _authentication(section, declared, checker)
    entitlement = _entitlement(section, declared, checker)
    tls = read_tls(section, checker)
    name, kind = section.first("Name"), section.first("Type")
    if kind is None:
        return None
    is_unix = kind == "amps-unix"
    needed, misplaced = ("FileName", ("InetAddr",)) if is_unix else ("InetAddr", ("FileName", "FileMask"))
    for other in misplaced:
        if section.nodes.get(other):
            checker.error(section.where(other), f"{other} has no meaning for the type {kind}; remove it")
    if section.first(needed) is None:
        if not section.nodes.get(needed):
            checker.note(
                section.node, checker.lenient_severity, f"{needed} is required for the type {kind}; add it"
            )
        return None
    if is_unix and len(section.first("FileName").encode()) > _LONGEST_SOCKET_PATH_BYTES:
        checker.error(
            section.where("FileName"),
            f"a socket path has at most {_LONGEST_SOCKET_PATH_BYTES} bytes; choose a shorter one",
        )
    if name is None:
        return None
    host, port = (None, None) if is_unix else section.first("InetAddr")
    return TransportConfig(
        name=name,
        type=kind,
        protocol="amps",
        message_type=None if kind in REPLICATION_TYPES else section.first("MessageType"),
        host=host,
        port=port,
        file_name=Path(section.first("FileName")) if is_unix else None,
        file_mask=section.first("FileMask") if is_unix else None,
        enabled=section.first("InitialState") == "enabled",
        tls=tls,
        authentication=authentication,
        entitlement=entitlement,
        message_memory_limit_bytes=section.first("MessageMemoryLimit"),
        client_max_capacity=section.first("ClientMaxCapacity"),
        client_message_age_limit_s=section.first("ClientMessageAgeLimit"),
    )


def _same_address(one: TransportConfig, other: TransportConfig) -> bool:
    if one.file_name is not None or other.file_name is not None:
        return one.file_name == other.file_name
    return one.port == other.port != 0 and (one.host == other.host or None in (one.host, other.host))


def _transaction_log(
    section: Section | None,
    message_types: Mapping[str, TypeSettings],
    functions: Functions,
    regex_topic_support: bool,
    checker: Checker,
) -> TransactionLogConfig | None:
    if section is None:
        return None
    topics = []
    for topic in section.all("Topic"):
        check_message_type(topic, message_types, checker)
        name = topic.first("Name")
        if name is None or topic.first("MessageType") is None:
            continue
        if regex_topic_support and has_regex_characters(name):
            try:
                read_pattern(name)
            except ValueError as error:
                checker.error(topic.where("Name"), f"{error}; correct it, or set RegexTopicSupport to false")
        content_filter = topic.first("Filter")
        if content_filter is not None:
            _check_filter(topic.where("Filter"), content_filter, functions, checker)
        topics.append(LoggedTopic(name, topic.first("MessageType"), content_filter))
    if not section.all("Topic"):
        checker.note(
            section.node,
            Severity.WARNING,
            "no Topic is given, so nothing is recorded; add Topic with Name and MessageType",
        )
    directory = section.first("JournalDirectory")
    if directory is None:
        if not checker.strict:
            checker.error(
                section.node,
                "there is no transaction log without JournalDirectory; add it, or remove TransactionLog",
            )
        return None
    archive = section.first("JournalArchiveDirectory")
    if archive is not None and Path(archive).absolute() == Path(directory).absolute():
        checker.error(
            section.where("JournalArchiveDirectory"),
            "journals are archived from JournalDirectory to another directory; name one, or remove this element",
        )
    return TransactionLogConfig(
        journal_directory=Path(directory),
        journal_archive_directory=None if archive is None else Path(archive),
        preallocated_journal_files=section.first("PreallocatedJournalFiles"),
        journal_size_bytes=-(-section.first("JournalSize") // MEBIBYTE) * MEBIBYTE,
        flush_interval_s=section.first("FlushInterval"),
        o_direct=section.first("O_DIRECT"),
        inactive_client_ack_expiration_s=section.first("InactiveClientAckExpiration"),
        journal_cache_bytes=section.first("CompressedJournalCacheMemoryLimit")
        or default_journal_cache_bytes(),
        topics=tuple(topics),
    )


def _check_filter(node: Node, text: str, functions: Functions, checker: Checker) -> None:
    try:
        compile_expression(text, functions=functions)
    except ExpressionError as error:
        checker.error(node, f"this filter cannot be used: {error}")


def _log_targets(section: Section | None, checker: Checker) -> tuple[LogTargetConfig, ...]:
    targets = []
    for target in section.all("Target") if section is not None else []:
        protocol = target.first("Protocol")
        if protocol is None:
            continue
        to_file = protocol in ("file", "gzip")
        for name, wanted in (
            ("FileName", to_file),
            ("RotationThreshold", to_file),
            ("Ident", protocol == "syslog"),
            ("Options", protocol == "syslog"),
            ("Facility", protocol == "syslog"),
        ):
            if not wanted and target.nodes.get(name):
                checker.note(
                    target.where(name),
                    checker.lenient_severity,
                    f"{name} has no meaning for the protocol {protocol}; remove it",
                )
        level = target.first("Level")
        levels = set(LEVELS[LEVELS.index(level) :]) if level in LEVELS else set()
        levels.update(name for name in target.first("Levels") if name != "none")
        if not levels and not target.first("IncludeErrors"):
            checker.note(
                target.node, Severity.INFO, "no Level, Levels or IncludeErrors: this target stays empty"
            )
        targets.append(
            LogTargetConfig(
                protocol=protocol,
                levels=frozenset(levels),
                include_ids=target.first("IncludeErrors"),
                exclude_ids=target.first("ExcludeErrors"),
                file_name=(target.first("FileName") or "%Y-%m-%dT%H%M%S.log") if to_file else None,
                rotation_threshold_bytes=target.first("RotationThreshold") if to_file else None,
                ident=target.first("Ident"),
                syslog_options=target.first("Options"),
                facility=target.first("Facility"),
            )
        )
    return tuple(targets)


def _tuning(section: Section | None) -> TuningConfig:
    transport = section.first("Transport") if section is not None else None
    log = section.first("TransactionLog") if section is not None else None
    topic_index = log.first("TopicIndex") if log is not None else None
    return TuningConfig(
        transport_workers=transport.first("Workers") if transport is not None else None,
        topic_index=topic_index.first("Enabled") if topic_index is not None else False,
        free_space_warning=log.first("FreeSpaceWarning") if log is not None else DEFAULT_FREE_SPACE,
    )
