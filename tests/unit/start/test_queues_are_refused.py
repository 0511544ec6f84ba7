"""Until the server has them, a configuration with message queues is not started."""

from pathlib import Path

import pytest

from amps.config import ConfigError, load

SAMPLES = Path(__file__).parents[3] / "conf"


@pytest.mark.parametrize(
    ("sample", "elements"),
    [("queues.xml", ("Queue", "Queue[2]", "LocalQueue")), ("dead-letters.xml", ("Queue", "LocalQueue"))],
)
def test_queues_are_refused_and_nothing_else_is_said(sample: str, elements: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(SAMPLES / sample)
    assert [(finding.path, finding.text) for finding in refusal.value.findings] == [
        (f"AMPSConfig/SOW/{element}", "not supported yet: queues") for element in elements
    ]
