"""`amps completion`: scripts that complete commands, options and their values in a shell."""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from amps.cli.options import HelpfulCommand

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(cls=HelpfulCommand, example='eval "$(amps completion bash)"')
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes `amps` in SHELL.

    For the current shell run eval "$(amps completion bash)", the same with zsh, or in fish: amps completion fish |
    source. For every shell write that line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.
    """
    script = SHELLS[shell](context.find_root().command, {}, "amps", "_AMPS_COMPLETE")
    # Not `source()`: it would run bash to look at its version.
    click.echo(script.source_template % script.source_vars())
