"""Lets the tests here read message queues, which the server does not accept yet."""

import pytest

from tests.support.queue_configurations import accept_queues


@pytest.fixture(autouse=True)
def queues_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    accept_queues(monkeypatch)
