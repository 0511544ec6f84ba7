"""The scenarios of the suite by name, and the selection of scenarios and peers."""

from collections.abc import Iterable, Sequence
from typing import Any

from perf.peers.base import Peer
from perf.scenarios.base import Scenario
from perf.scenarios.client_library import ClientLive, ClientPublish, ClientQueue, ClientReplay
from perf.scenarios.client_store import ClientStore
from perf.scenarios.document_deltas import DocumentDeltas
from perf.scenarios.embedded_start import EmbeddedStart
from perf.scenarios.filters import FilterLibraries, FilterSubscriptions, FilterTypes
from perf.scenarios.journal_scan import JournalScan
from perf.scenarios.live_latency import LiveLatency
from perf.scenarios.many_replays import ManyReplays
from perf.scenarios.publish_persist import PublishPersist
from perf.scenarios.publish_singly import PublishSingly
from perf.scenarios.queue_delays import QueueDelays
from perf.scenarios.queue_depth import QueueDepth
from perf.scenarios.queue_latency import QueueLatency
from perf.scenarios.queue_ordering import QueueOrdering
from perf.scenarios.queue_restart import QueueRestart
from perf.scenarios.queue_throughput import QueueThroughput
from perf.scenarios.queue_topics import QueueTopics
from perf.scenarios.queue_transactions import QueueTransactions
from perf.scenarios.recovery import Recovery
from perf.scenarios.replay import Replay
from perf.scenarios.replicate_catch_up import ReplicateCatchUp
from perf.scenarios.replicate_persist import ReplicatePersist
from perf.scenarios.replicate_queue import ReplicateQueue
from perf.scenarios.sow_depth import SowDepth
from perf.scenarios.sow_query import SowQuery
from perf.scenarios.sow_subscribe import SowSubscribe
from perf.scenarios.sow_update import Delta, SowUpdate
from perf.scenarios.spark_read import SparkReadScenario

SCENARIOS: dict[str, Scenario[Any]] = {
    scenario.name: scenario
    for scenario in (
        PublishPersist(),
        PublishSingly(),
        LiveLatency(),
        Replay(),
        ManyReplays(),
        Recovery(),
        JournalScan(),
        QueueThroughput(),
        QueueLatency(),
        QueueDepth(),
        QueueDelays(),
        QueueRestart(),
        QueueTopics(),
        QueueOrdering(),
        QueueTransactions(),
        FilterLibraries(),
        FilterTypes(),
        FilterSubscriptions(),
        DocumentDeltas(),
        ClientStore(),
        EmbeddedStart(),
        ReplicatePersist(),
        ReplicateQueue(),
        ReplicateCatchUp(),
        SowUpdate(),
        SowQuery(),
        SowDepth(),
        SowSubscribe(),
        Delta(),
        SparkReadScenario(),
        ClientPublish(),
        ClientLive(),
        ClientReplay(),
        ClientQueue(),
    )
}


def is_chosen(name: str, wanted: str) -> bool:
    """True if a name, such as `redis-always`, is the wanted name or of the wanted family, such as `redis`."""
    return name == wanted or name.startswith(f"{wanted}-")


def families(names: Iterable[str]) -> list[str]:
    """The first words of names."""
    return list(dict.fromkeys(name.split("-")[0] for name in names))


def chosen_scenarios(wanted: str) -> list[Scenario[Any]]:
    """One scenario, those of a family, or `all`. Raises ValueError if there is none."""
    found = [scenario for name, scenario in SCENARIOS.items() if wanted == "all" or is_chosen(name, wanted)]
    if not found:
        raise ValueError(f"no scenario is called {wanted}; there are {', '.join(SCENARIOS)}")
    return found


def chosen_peers(scenarios: Sequence[Scenario[Any]], wanted: Sequence[str]) -> list[list[Peer]]:
    """The chosen peers of each scenario, by name or family; all if `wanted` is empty."""
    if not wanted:
        return [list(scenario.peers) for scenario in scenarios]
    known = [peer.name for scenario in SCENARIOS.values() for peer in scenario.peers]
    unknown = [one for one in wanted if not any(is_chosen(name, one) for name in known)]
    if unknown:
        names = ", ".join(dict.fromkeys((*families(known), *known)))
        raise ValueError(f"no peer is called {', '.join(unknown)}; there are {names}")
    return [
        [peer for peer in scenario.peers if any(is_chosen(peer.name, one) for one in wanted)]
        for scenario in scenarios
    ]


__all__ = ["SCENARIOS", "Scenario", "chosen_peers", "chosen_scenarios"]
