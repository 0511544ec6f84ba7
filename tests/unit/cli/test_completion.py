"""Help and completion of all commands."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from amps.cli.completion import SHELLS
from amps.cli.main import amps
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment
from tests.unit.cli.test_command_line import invoke


def all_commands(group: click.Group = amps, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))


@pytest.mark.parametrize("path", list(all_commands()), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    done = invoke(*path, "--help")
    assert done.exit_code == 0
    assert f"Usage: amps {' '.join(path)}" in done.output
    example = done.output.partition("Example:\n")[2]
    assert f"amps {path[0]}" in example
    if len(path) == 1 and path != ("help",):
        assert invoke("help", *path).exit_code == 0


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ([], "sub", {"subscribe"}),
        ([], "sow", {"sow", "sow_and_subscribe", "sow_delete"}),
        (["subscribe"], "-out", {"-output"}),
        (["subscribe"], "--out", {"--output"}),
        (["subscribe", "-output"], "", {"raw", "json", "pretty", "table"}),
        (["context"], "", {"add", "list", "remove", "show", "use"}),
        (["context", "use"], "", {"one", "two"}),
        (["ping", "-context"], "t", {"two"}),
        (["completion"], "", {"bash", "zsh", "fish"}),
    ],
)
def test_completion(words: list[str], incomplete: str, expected: set[str]) -> None:
    for name in ("one", "two"):
        invoke("context", "add", name, "-server", "h:1")
    complete = ShellComplete(amps, {}, "amps", "_AMPS_COMPLETE")
    assert {item.value for item in complete.get_completions(words, incomplete)} == expected


@pytest.mark.parametrize("shell", list(SHELLS))
def test_the_script_is_of_its_shell(shell: str) -> None:
    script = invoke("completion", shell).stdout
    assert "_AMPS_COMPLETE" in script
    assert f"{shell}_complete" in script
    if shutil.which(shell) is not None:
        checked = subprocess.run(
            [shell, "-n"], input=script.encode(), capture_output=True, timeout=TIMEOUT_S, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, b"")


def test_bash_completes_by_the_script(tmp_path: Path) -> None:
    """A real bash evaluates the script and calls its function, as it does when tab is pressed."""
    (tmp_path / "amps").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (tmp_path / "amps").chmod(0o755)
    program = """
        eval "$(amps completion bash)"
        complete -p amps
        COMP_WORDS=(amps subscribe -out) COMP_CWORD=2
        _amps_completion amps
        printf '%s\n' "${COMPREPLY[@]}"
    """
    env = environment()
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, timeout=TIMEOUT_S, check=False,
        env={**env, "PATH": f"{tmp_path}:{env['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    registered, *replies = done.stdout.decode().splitlines()
    assert "_amps_completion" in registered
    assert replies == ["-output"]
