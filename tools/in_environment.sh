#!/bin/sh
# Runs a command with the tools of the virtual environment that is active, else with those of .venv if it is there.
#
#   tools/in_environment.sh ruff check .
set -eu
if [ -z "${VIRTUAL_ENV:-}" ]; then
    PATH="$(cd "$(dirname "$0")/.." && pwd)/.venv/bin:$PATH"
fi
exec "$@"
