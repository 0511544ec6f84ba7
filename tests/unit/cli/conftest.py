"""No test depends on the settings of the user who runs it."""

from pathlib import Path

import pytest

from amps.cli.contexts import SETTING_NAMES
from amps.cli.settings import CONTEXT_VARIABLE, variable_of


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory, also for started processes."""
    for variable in (CONTEXT_VARIABLE, *map(variable_of, SETTING_NAMES)):
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "config-home"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return home
