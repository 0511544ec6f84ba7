"""An administration interface on its own port, with a substitute for the core."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.admin import AdminFixture

StartAdmin = Callable[..., AdminFixture]


@pytest.fixture
def start_admin() -> Iterator[StartAdmin]:
    """Start interfaces. Options: `admin_xml`, `actions_xml`, `instance_xml`, `journals`."""
    started: list[AdminFixture] = []

    def start(**options: object) -> AdminFixture:
        started.append(AdminFixture(**options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.close()
