#!/bin/sh
# Reverses install-amps-daemon.sh: stops and removes the service and the program. The configuration, all
# run-time data, and the user that they belong to stay.
set -eu

PREFIX=${AMPS_PREFIX:-/opt/amps}
CONFIG_DIRECTORY=${AMPS_CONFIG_DIRECTORY:-/opt/etc/amps}
UNIT_DIRECTORY=${AMPS_UNIT_DIRECTORY:-/usr/lib/systemd/system}
STATE_DIRECTORY=${AMPS_STATE_DIRECTORY:-/var/lib/amps}

usage() {
    cat <<USAGE
usage: sudo ./uninstall-amps-daemon.sh [--help]

Stops the service "amps", removes it and the program in $PREFIX.
$CONFIG_DIRECTORY, $STATE_DIRECTORY and the user of the service stay.

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

# True if the commands of this script to systemd apply to this installation's unit.
manages_services() {
    command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ] || return 1
    case $UNIT_DIRECTORY in
        /usr/lib/systemd/system | /lib/systemd/system | /etc/systemd/system | /usr/local/lib/systemd/system) return 0 ;;
        *) return 1 ;;
    esac
}

if manages_services; then
    systemctl disable --now amps.service 2>/dev/null || true
fi
rm -f "$UNIT_DIRECTORY/amps.service" "$UNIT_DIRECTORY/amps.service.d/needs.conf"
rmdir "$UNIT_DIRECTORY/amps.service.d" 2>/dev/null || true
if manages_services; then
    systemctl daemon-reload
fi

if [ -e "$PREFIX" ]; then
    # Remove only an installation of the installer, never another directory of that name.
    { [ -f "$PREFIX/pyvenv.cfg" ] && [ -x "$PREFIX/bin/ampServer" ]; } \
        || fail "$PREFIX does not look like an installation of this server; it was left alone"
    rm -rf "$PREFIX"
fi
echo "Removed the service and $PREFIX. $CONFIG_DIRECTORY, $STATE_DIRECTORY and the user that they belong to were kept."
