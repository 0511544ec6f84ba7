"""Each instance of a group is restarted in turn under load: nothing is lost, and nothing comes twice.

replication.md §18 and §19.

The clients are highly available, and the subscriber is fully durable. An odd restart is a kill, an even one orderly.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.failover_load import FailoverLoad, by_publisher
from tests.support.instances import Instances
from tests.support.topologies import LINES, SITES, Shape

PROGRESS = 100
"""Messages of each publisher between two restarts."""


@pytest.fixture
def shape(tmp_path: Path) -> Iterator[Shape]:
    made = Shape(Instances(tmp_path))
    yield made
    made.close()


def _roll(shape: Shape, load: FailoverLoad) -> None:
    """Restart each instance in turn, while messages go on before and after."""
    for turn, name in enumerate(shape.names):
        load.wait_for_progress(PROGRESS)
        if turn % 2:
            shape.instances.kill(name)
        else:
            shape.instances[name].stop()
        shape.instances.launch(name)
    load.wait_for_progress(PROGRESS)


def _check_logs(shape: Shape, expected: list[int]) -> None:
    for name in shape.names:
        assert by_publisher(shape.numbers(name, len(expected))) == expected, name


@pytest.mark.parametrize(
    "lines", ["pair", "ring", *(pytest.param(name, marks=pytest.mark.long) for name in ("chain", "star"))]
)
def test_clients_move_through_a_group_that_waits_for_all(shape: Shape, unique: str, lines: str) -> None:
    """All links are sync, so clients may move anywhere."""
    shape.add_lines(lines).instances.start()
    uris = [shape.uri(name) for name in shape.names]
    with FailoverLoad(unique, [uris, uris[::-1]], uris[1:] + uris[:1]) as load:
        _roll(shape, load)
        expected = load.finish()
    _check_logs(shape, expected)


def test_clients_stay_in_their_site(shape: Shape, unique: str) -> None:
    """Between the sites nobody waits: clients move inside their site, and the other site gets everything, too."""
    shape.add_sites().instances.start()
    east, west = ([shape.uri(name) for name in SITES[site]] for site in ("east", "west"))
    with FailoverLoad(unique, [east, west], west[::-1]) as load:
        _roll(shape, load)
        expected = load.finish()
    _check_logs(shape, expected)


def test_all_lines_go_both_ways() -> None:
    """The shapes of these tests: what one sends to another, the other sends back."""
    for lines in LINES.values():
        links = {(line[0], other) for line in lines for other in line[1:]}
        assert links == {(other, first) for first, other in links}
