"""Python modules and UserDefinedFunctions in a configuration, for use in expressions (expressions.md §10.11)."""

import sys
from pathlib import Path

import pytest

from amps._core.expressions.machine import UserFunction
from amps.config import ConfigError, LoadedConfig, Severity, load
from amps.config.modules import load_code

CODE = """
from dataclasses import dataclass

@dataclass
class Pair:
    left: int

def double(value):
    return value * 2

def joined(first, second="-", *more):
    return first

def named(*, key):
    return key

text = "no function"
"""


def read(inner: str) -> LoadedConfig:
    return load("c.xml", text=f"<AMPSConfig>\n<Name>n</Name>\n{inner}\n</AMPSConfig>")


def errors_of(inner: str) -> list[tuple[int, str]]:
    """The line and text of each error."""
    with pytest.raises(ConfigError) as refusal:
        read(inner)
    return [
        (finding.line, finding.text)
        for finding in refusal.value.findings
        if finding.severity is Severity.ERROR
    ]


def module(library: str | Path, name: str = "mine") -> str:
    return f"<Modules><Module><Name>{name}</Name><Library>{library}</Library></Module></Modules>\n"


def function(name: str, symbol: str, *more: str, of: str = "mine") -> str:
    lines = "\n".join((f"<Name>{name}</Name>", f"<Module>{of}</Module>", f"<Symbol>{symbol}</Symbol>", *more))
    return f"<UserDefinedFunctions><Function>\n{lines}\n</Function></UserDefinedFunctions>"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "own_functions.py"
    path.write_text(CODE)
    return path


def only(loaded: LoadedConfig) -> UserFunction:
    (made,) = loaded.config.functions.own.values()
    return made


def test_functions_from_a_file(library: Path) -> None:
    made = only(read(module(library) + function("twice", "double", "<ParameterCount>1</ParameterCount>")))
    assert (made.name, made.minimum, made.maximum) == ("TWICE", 1, 1)
    assert made.implementation(4) == 8


def test_functions_from_a_module_that_can_be_imported() -> None:
    made = only(read(module("math") + function("gamma", "gamma", "<ParameterCount>1</ParameterCount>")))
    assert made.implementation(5) == 24


@pytest.mark.parametrize("count", ["", "<ParameterCount></ParameterCount>"])
def test_without_an_argument_count_a_function_takes_any_number_that_python_allows(
    library: Path, count: str
) -> None:
    """If the count is missing or empty, the function takes any number of arguments that its signature allows."""
    made = only(read(module(library) + function("f", "joined", count)))
    assert (made.minimum, made.maximum) == (1, None)
    made = only(read(module(library) + function("f", "double", count)))
    assert (made.minimum, made.maximum) == (1, 1)


def test_a_filter_of_the_configuration_may_call_them(library: Path) -> None:
    log = (
        "<TransactionLog><JournalDirectory>j</JournalDirectory><Topic><Name>a</Name>"
        "<MessageType>json</MessageType><Filter>TWICE(/a) = 4</Filter></Topic></TransactionLog>"
    )
    read(module(library) + function("twice", "double") + log)
    ((_, text),) = errors_of(log)
    assert "there is no function TWICE" in text


def test_the_legacy_functions_exist_if_their_module_is_loaded() -> None:
    assert not read("").config.functions.legacy
    assert read(module("/opt/lib/libamps_udf_legacy_compatibility.so")).config.functions.legacy


def test_value_lookup_is_not_supported_yet() -> None:
    ((line, text),) = errors_of(module("libamps_udf_experimental.so"))
    assert line == 3
    assert text.startswith("not supported yet: VALUE_LOOKUP")


def test_files_of_one_name_are_modules_of_their_own(tmp_path: Path) -> None:
    """Each file is entered in sys.modules under a name of its own. A file that fails to load leaves no entry."""
    loaded = []
    for number in range(2):
        path = tmp_path / str(number) / "same.py"
        path.parent.mkdir()
        path.write_text(f"NUMBER = {number}")
        loaded.append(load_code(str(path)))
    assert [sys.modules[code.__name__] for code in loaded] == loaded
    assert [code.NUMBER for code in loaded] == [0, 1]
    before = set(sys.modules)
    path.write_text("raise KeyError")
    with pytest.raises(ValueError, match="KeyError"):
        load_code(str(path))
    assert set(sys.modules) == before


def test_a_module_that_cannot_be_loaded_stops_the_start(tmp_path: Path) -> None:
    """expressions.md §10.11: an unknown module is a configuration error."""
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nsys.exit(3)")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f(:")
    for library, reason in (
        (tmp_path / "none.py", "does not exist; correct the path"),
        (broken, "cannot be loaded: SystemExit: 3; write the path of a .py file"),
        (wrong, "cannot be loaded: SyntaxError: "),
        ("no_such_module_of_anybody", "cannot be loaded: ModuleNotFoundError: "),
        ("libsomething.so", "no module is built in for the library 'libsomething.so'"),
        ("..", "cannot be loaded: "),
    ):
        ((line, text),) = errors_of(module(library) + function("f", "g"))
        assert line == 3
        assert reason in text


@pytest.mark.parametrize(
    ("declared", "line", "text"),
    [
        (function("f", "nothing"), 7, "'nothing' is no function of the module 'mine'"),
        (function("f", "text"), 7, "'text' is no function of the module 'mine'"),
        (function("f", "double", of="yours"), 6, "no module 'yours' is declared; declare it in Modules"),
        (function("concat", "double"), 5, "CONCAT is a built-in function"),
        (function("f(", "double"), 5, "letters, digits and _"),
        (
            function("f", "double", "<ParameterCount>2</ParameterCount>"),
            8,
            "cannot be called with 2 arguments",
        ),
        (
            function("f", "joined", "<ParameterCount>0</ParameterCount>"),
            8,
            "cannot be called with 0 arguments",
        ),
        (function("f", "double", "<ParameterCount>256</ParameterCount>"), 8, "above the maximum of 255"),
        (function("f", "double", "<ParameterCount>-1</ParameterCount>"), 8, "-1"),
        (function("f", "named"), 4, "cannot be called with 0 arguments"),
    ],
)
def test_an_invalid_function_is_an_error_with_its_line(
    library: Path, declared: str, line: int, text: str
) -> None:
    ((found_line, found),) = errors_of(module(library) + declared)
    assert found_line == line
    assert text in found


def test_a_name_is_given_once_whatever_its_case(library: Path) -> None:
    inner = module(library) + (function("f", "double") + function("F", "joined")).replace(
        "</UserDefinedFunctions><UserDefinedFunctions>", ""
    )
    ((line, text),) = errors_of(inner)
    assert line == 9
    assert "F exists already" in text


def test_a_module_for_security_has_no_functions() -> None:
    ((_, text),) = errors_of(module("libamps_simple_access_entitlement.so") + function("f", "g"))
    assert "is no Python code" in text
