"""Until the server has them, a configuration with message queues is not started."""

from pathlib import Path

import pytest

from amps.config import ConfigError, load

SAMPLE = Path(__file__).parents[3] / "conf" / "queues.xml"


def test_queues_are_refused_and_nothing_else_is_said() -> None:
    with pytest.raises(ConfigError) as refusal:
        load(SAMPLE)
    assert [(finding.path, finding.text) for finding in refusal.value.findings] == [
        (f"AMPSConfig/SOW/{element}", "not supported yet: queues")
        for element in ("Queue", "Queue[2]", "LocalQueue")
    ]
