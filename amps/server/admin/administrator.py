"""The operations below `/amps/administrator` (operations.md §5.4)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from amps.config import ServerConfig
from amps.config.admin import ADMIN_TRANSPORT
from amps.server.admin.access import Access
from amps.server.admin.instance import journal_collection, known_journals
from amps.server.admin.queues import QueueView
from amps.server.admin.replication import ReplicationView
from amps.server.admin.tree import Collection, Dynamic, Group, Node, Operation, Question, Refused
from amps.server.eventlog import EventLog
from amps.server.services.actions.engine import AdminPath, Busy, Engine
from amps.server.services.core_requests import CoreRefused, CoreRequests


def administrator_node(
    config: ServerConfig,
    core: CoreRequests,
    engine: Engine,
    access: Access,
    log: EventLog,
    queues: QueueView | None,
    replication: ReplicationView | None,
) -> Group:
    """The node with all operations."""
    children: dict[str, Node] = {
        "actions": Group(
            {path: _action(engine, path, said) for path, said in sorted(engine.admin_paths.items())}
        ),
        "authorization": _authorization(access),
        "diagnostics": Group({"dump": _dump(log, queues)}),
    }
    if queues is not None:
        children["queues"] = queues.administrator_node()
    if replication is not None and replication.has_destinations:
        children["replication"] = replication.administrator_node()
    if config.transaction_log is not None:

        async def journals() -> Collection:
            full = [journal for journal in await known_journals(core) if journal.get("full")]
            return journal_collection(full, partial(_journal, core))

        children["transaction_log"] = Group({"journals": Dynamic(journals)})
    return Group(children)


def _authorization(access: Access) -> Group:
    def check(parameters: Mapping[str, str], identity: str) -> str:
        if "path" not in parameters:
            raise Refused(400, "the parameter path is missing")
        return "true" if access.allows(identity, parameters["path"]) else "false"

    of_admin = Group({ADMIN_TRANSPORT: Group({"check": Question(check)})})
    # The documents spell it both ways.
    return Group({"entitlement": Group({"transport": of_admin, "transports": of_admin})})


def _dump(log: EventLog, queues: QueueView | None) -> Operation:
    async def run(parameters: Mapping[str, str]) -> None:
        log.log("31-0010", data="there are no queues" if queues is None else await queues.dump())

    return Operation(run, "the state of all queues, to the log")


def _action(engine: Engine, path: str, said: AdminPath) -> Operation:
    async def run(parameters: Mapping[str, str]) -> None:
        missing = [name for name in said.required if name not in parameters]
        if missing:
            raise Refused(400, f"the parameter {missing[0]} is missing")
        try:
            done = engine.happened("admin", path, parameters)
        except Busy:
            raise Refused(500, "too many requests wait for this action already; try again later") from None
        assert done is not None
        reason = await done
        if reason is not None:
            raise Refused(500, reason)

    return Operation(
        run, ": ".join(text for text in (said.name, said.description) if text), tuple(said.required)
    )


def _journal(core: CoreRequests, journal: dict[str, Any]) -> Group:
    def operation(verb: str) -> Operation:
        async def run(parameters: Mapping[str, str]) -> None:
            try:
                await core.mark(verb, {"up_to": journal["number"]})
            except CoreRefused as refusal:
                raise Refused(500, str(refusal)) from None

        return Operation(run, "this journal and all older ones")

    return Group({verb: operation(verb) for verb in ("archive", "compress", "remove")})
