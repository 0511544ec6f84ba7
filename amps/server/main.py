"""`ampServer`: the command that runs an instance from a configuration file.

It reads the command line and the configuration, prints warnings, and starts the supervisor. Exit codes: those of the
help text, of which 70 and 74 are explained in stopping.py. A process killed by signal N ends with 128+N as seen by a
shell.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from amps.config import ConfigError, LoadedConfig, Severity, dump, load, sample_config
from amps.server import console
from amps.server.clock import SYSTEM, Clock
from amps.server.daemon import run_as_daemon
from amps.server.eventlog import unwritable_targets
from amps.server.host import check_host, raise_open_files_limit, version_lines

_EPILOG = """\
signals, to the first process (amps: supervisor):
  SIGTERM, SIGINT, SIGHUP  stop in order; SIGHUP does not read the configuration again
  SIGUSR1, SIGUSR2         switch authentication and entitlement off, on again
  an action in the configuration replaces these: amps-action-on-signal for SIGHUP, with
  amps-action-do-rotate-logs, has every log target begin its next file, or open its file again (for logrotate)

exit codes:
  0   clean shutdown, or an option such as --version was carried out
  1   usage, configuration or start failed, or the running instance gave up; the log has the reason
  70  a process died in the shutdown; acknowledged messages are kept
  74  the transaction log was not made durable in the shutdown: messages that were not acknowledged may be missing"""


class _Parser(argparse.ArgumentParser):
    """Usage errors end with exit code 1."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}; --help lists the options", file=sys.stderr)
        raise SystemExit(1)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=value")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ampServer",
        usage="ampServer [options] <config file>",
        description="Run a messaging instance from a configuration file.",
        allow_abbrev=False,
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    parser.add_argument("config", nargs="?", metavar="<config file>", help="the AMPSConfig file")
    question = parser.add_mutually_exclusive_group()
    question.add_argument(
        "--verify-config", action="store_true", help="check the file, report findings, exit"
    )
    question.add_argument(
        "--sample-config", action="store_true", help="print a configuration to start from, exit"
    )
    question.add_argument(
        "--dump-config", action="store_true", help="print the file with includes and variables resolved, exit"
    )
    question.add_argument("--version", action="store_true", help="print the version, exit")
    question.add_argument("--help", "-h", action="store_true", help="print this help, exit")
    question.add_argument("--daemon", action="store_true", help="run in the background, return when ready")
    parser.add_argument(
        "-D",
        dest="defines",
        metavar="<var>=<val>",
        type=_variable,
        action="append",
        default=[],
        help="set a variable for ${var} in the configuration; any number of times",
    )
    return parser


def main(argv: Sequence[str] | None = None, clock: Clock = SYSTEM) -> int:
    """Run the command. Returns its exit code. `clock`: the time of the instance, for embedded servers."""
    console.prepare()
    try:
        return _answer(argv, clock)
    except OSError as error:  # output that could not be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):  # a reader may close the pipe early
            console.complain(f"Error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _answer(argv: Sequence[str] | None, clock: Clock) -> int:
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
        if arguments.help:
            parser.print_help()
            return 0
        if arguments.version:
            print("\n".join(version_lines()), flush=True)
            return 0
        if arguments.sample_config:
            print(sample_config(), end="", flush=True)
            return 0
        if arguments.config is None:
            parser.error("a configuration file is needed")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return _with_file(arguments, clock)


def _with_file(arguments: argparse.Namespace, clock: Clock) -> int:
    defines = dict(arguments.defines)
    try:
        if arguments.dump_config:
            print(dump(arguments.config, defines), end="", flush=True)
            return 0
        loaded = load(arguments.config, defines)
    except ConfigError as error:
        if arguments.verify_config:
            return _print_verdict(arguments.config, error)
        for finding in error.findings:
            print(finding, file=sys.stderr)
        print("Error: the configuration cannot be used, the server does not start", file=sys.stderr)
        return 1
    if arguments.verify_config:
        return _print_verdict(arguments.config, loaded)
    return start(loaded, daemon=arguments.daemon, clock=clock)


def _print_verdict(path: str, outcome: LoadedConfig | ConfigError) -> int:
    for finding in outcome.findings:
        print(finding)
    errors = sum(finding.severity is Severity.ERROR for finding in outcome.findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in outcome.findings)
    verdict = "cannot be used" if errors else "is valid"
    print(f"{path}: the configuration {verdict}: errors {errors}, warnings {warnings}", flush=True)
    return 1 if errors else 0


def start(loaded: LoadedConfig, *, daemon: bool = False, clock: Clock = SYSTEM) -> int:
    """Print warnings before a start, and run the instance until its shutdown."""
    raise_open_files_limit()
    console.say("\n".join(version_lines()))
    host = check_host()
    for warning in host.warnings:
        console.say(f"Warning: {warning}")
    if daemon and any(target.protocol in ("stdout", "stderr") for target in loaded.config.logging):
        console.say(
            "Warning: in the background the log targets stdout and stderr are lost; add a target for a file"
        )
    problems = [*host.errors, *unwritable_targets(loaded.config.logging)]
    for problem in problems:
        console.complain(f"Error: {problem}")
    if problems:
        return 1
    # Imported here: --help and checking a file do not need the server's modules.
    from amps.server import supervisor

    if daemon:
        return run_as_daemon(lambda ready_fd: supervisor.run(loaded, ready_fd=ready_fd, clock=clock))
    return supervisor.run(loaded, clock=clock)


if __name__ == "__main__":
    sys.exit(main())
