"""Markdown tables, and the ratios in them."""

from collections.abc import Iterable, Sequence

from perf.measurement import PeerResult

OWN = "amps"
"""The family of peers that are this server."""


def is_own(result: PeerResult) -> bool:
    return result.peer.name == OWN or result.peer.name.startswith(f"{OWN}-")


def lines(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table: the first column is text, all others are numbers."""
    return [
        title,
        "",
        f"| {' | '.join(columns)} |",
        f"| --- |{' ---: |' * (len(columns) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def ratio(results: Sequence[PeerResult], peer: PeerResult, value: str, higher_is_better: bool) -> str:
    """Ratio of the first peer of this server to this peer, above 1 if better; empty for peers of this server."""
    own = next(filter(is_own, results), None)
    if own is None or is_own(peer):
        return ""
    ours, theirs = own.median(value), peer.median(value)
    return f"{ours / theirs if higher_is_better else theirs / ours:.2f}×"


def figure(peer: PeerResult, value: str, decimals: int = 0) -> str:
    """The median of a value; empty if the peer has none."""
    return f"{peer.median(value):,.{decimals}f}" if value in peer.runs[0].values else ""


def extremes(peer: PeerResult, value: str) -> str:
    lowest, highest = peer.extremes(value)
    return f"{lowest:,.0f} … {highest:,.0f}"
