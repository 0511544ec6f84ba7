#!/bin/sh
# Reverses install-amps-daemon.sh: stops and removes the service and the program. The configuration and all
# run-time data stay.
set -eu

PREFIX=${AMPS_PREFIX:-/opt/amps}
CONFIG_DIRECTORY=${AMPS_CONFIG_DIRECTORY:-/opt/etc/amps}
UNIT_DIRECTORY=${AMPS_UNIT_DIRECTORY:-/usr/lib/systemd/system}
STATE_DIRECTORY=${AMPS_STATE_DIRECTORY:-/var/lib/amps}

usage() {
    cat <<USAGE
usage: sudo ./uninstall-amps-daemon.sh [--help]

Stops the service "amps", removes it and the program in $PREFIX.
$CONFIG_DIRECTORY and $STATE_DIRECTORY stay.

Environment: AMPS_PREFIX, AMPS_CONFIG_DIRECTORY, AMPS_UNIT_DIRECTORY and AMPS_STATE_DIRECTORY as given to
install-amps-daemon.sh.
USAGE
}

fail() {
    echo "uninstall-amps-daemon.sh: $1" >&2
    exit 1
}

case "${1:-}" in
    --help) usage; exit 0 ;;
    "") ;;
    *) usage >&2; exit 1 ;;
esac

[ "$(id -u)" -eq 0 ] || fail "root is needed; run it with sudo"

if command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
    systemctl disable --now amps.service 2>/dev/null || true
fi
rm -f "$UNIT_DIRECTORY/amps.service"
if command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi

if [ -e "$PREFIX" ]; then
    # Only what the installer made is removed: never a directory that merely has that name.
    { [ -f "$PREFIX/pyvenv.cfg" ] && [ -x "$PREFIX/bin/ampServer" ]; } \
        || fail "$PREFIX does not look like an installation of this server; it was left alone"
    rm -rf "$PREFIX"
fi
echo "Removed the service and $PREFIX. $CONFIG_DIRECTORY and $STATE_DIRECTORY were kept."
