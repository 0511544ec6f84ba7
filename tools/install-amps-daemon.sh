#!/bin/sh
# Installs the server as a service of this host: a virtual environment in /opt/amps, the configuration
# directory /opt/etc/amps, a systemd unit, and start at boot.
#
# Run from anywhere inside an unpacked source tree or a clone. Installing again upgrades the program and
# keeps /opt/etc/amps and all data.
set -eu

PREFIX=${AMPS_PREFIX:-/opt/amps}
CONFIG_DIRECTORY=${AMPS_CONFIG_DIRECTORY:-/opt/etc/amps}
UNIT_DIRECTORY=${AMPS_UNIT_DIRECTORY:-/usr/lib/systemd/system}
STATE_DIRECTORY=${AMPS_STATE_DIRECTORY:-/var/lib/amps}
PYTHON=${PYTHON:-python3}

usage() {
    cat <<USAGE
usage: sudo ./install-amps-daemon.sh [--help]

Installs the server into $PREFIX and as the service "amps", started at boot.
The configuration is $CONFIG_DIRECTORY/config.xml; it is created from conf/service.xml if missing
and never overwritten. Data goes to $STATE_DIRECTORY.

Environment: PYTHON (interpreter, default python3), AMPS_PREFIX, AMPS_CONFIG_DIRECTORY,
AMPS_UNIT_DIRECTORY and AMPS_STATE_DIRECTORY change the places above.
USAGE
}

fail() {
    echo "install-amps-daemon.sh: $1" >&2
    exit 1
}

case "${1:-}" in
    --help) usage; exit 0 ;;
    "") ;;
    *) usage >&2; exit 1 ;;
esac

[ "$(id -u)" -eq 0 ] || fail "root is needed; run it with sudo"

SOURCE=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
[ -f "$SOURCE/conf/amps.service" ] || fail "conf/amps.service is not beside tools/; run the script from a source tree"
command -v "$PYTHON" >/dev/null 2>&1 || fail "$PYTHON is not installed; install Python 3.11 or newer, or set PYTHON"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$PYTHON is older than 3.11; set PYTHON to a newer one"

echo "Installing into $PREFIX"
mkdir -p "$PREFIX" "$CONFIG_DIRECTORY" "$STATE_DIRECTORY" "$UNIT_DIRECTORY"
[ -x "$PREFIX/bin/python" ] || "$PYTHON" -m venv "$PREFIX"
"$PREFIX/bin/python" -m pip install --quiet --upgrade "$SOURCE"

# The directory for site files holds the other host settings, to be copied by whoever owns the host.
mkdir -p "$PREFIX/share/amps"
cp "$SOURCE"/conf/* "$PREFIX/share/amps/"

if [ -e "$CONFIG_DIRECTORY/config.xml" ]; then
    echo "Keeping $CONFIG_DIRECTORY/config.xml"
else
    sed "s|/var/lib/amps|$STATE_DIRECTORY|g" "$SOURCE/conf/service.xml" > "$CONFIG_DIRECTORY/config.xml"
    echo "Created $CONFIG_DIRECTORY/config.xml"
fi
"$PREFIX/bin/ampServer" --verify-config "$CONFIG_DIRECTORY/config.xml" \
    || fail "$CONFIG_DIRECTORY/config.xml cannot be used; correct it and start the service"

sed -e "s|/opt/amps/|$PREFIX/|g" -e "s|/opt/etc/amps|$CONFIG_DIRECTORY|g" -e "s|/var/lib/amps|$STATE_DIRECTORY|g" \
    "$SOURCE/conf/amps.service" > "$UNIT_DIRECTORY/amps.service"
echo "Installed $UNIT_DIRECTORY/amps.service"

if command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl enable amps.service
    echo "Start it with: systemctl start amps"
else
    echo "systemd does not run here: enable and start the service where it does"
fi
echo "Host settings to consider are in $PREFIX/share/amps"
