"""The model of the state of the world gives the results of sow.md §25, and the examples find a wrong rule in it."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import support
from tests.support.sow_conflation_examples import EXAMPLES
from tests.support.sow_examples import Example
from tests.unit.support.broken_sow_models import BROKEN, Broken

MODULES = (
    *("sow_documents", "sow_model", "sow_views", "sow_conflation"),
    *("sow_examples", "sow_conflation_examples"),
)
"""In the order of their imports."""


def run_all(examples: list[Example]) -> None:
    for run in examples:
        run()


def broken_examples(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The examples, with modules of their own in which one rule is wrong."""
    module = ModuleType("empty")
    for name in MODULES:
        path = Path(support.__path__[0], f"{name}.py")
        source = path.read_text()
        if name == broken.module:
            assert source.count(broken.right) == 1, "the rule has another text now"
            source = source.replace(broken.right, broken.wrong)
        module = ModuleType(f"tests.support.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(support, name, module, raising=False)
        exec(compile(source, str(path), "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("run", EXAMPLES, ids=lambda function: function.__name__)
def test_the_model_gives_the_results_of_the_example(run: Example) -> None:
    """sow.md §25: those that each example names."""
    run()


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.right} -> {broken.wrong}"[:90])
def test_the_examples_find_a_wrong_rule(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples fail with each wrong rule, which tests the examples."""
    module = broken_examples(broken, monkeypatch)
    with pytest.raises((AssertionError, AttributeError, KeyError, TypeError, pytest.fail.Exception)):
        run_all(module.EXAMPLES)


def test_the_modules_of_broken_examples_are_good_without_the_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the loading, not the wrong rule, would be what fails."""
    run_all(broken_examples(Broken("", "", ""), monkeypatch).EXAMPLES)
