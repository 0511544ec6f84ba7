#!/bin/sh
# Installs the server as a service of this host: a virtual environment in /opt/amps, the configuration
# directory /opt/etc/amps, a system user that it runs as, a systemd unit, and start at boot.
#
# Run it from anywhere inside an unpacked source tree or a clone; nothing is written there. Installing again upgrades
# the program and keeps /opt/etc/amps and all data. The script checks the configuration as the user that the service
# runs as, and reports missing permissions before it replaces the unit.
set -eu
umask 022

PREFIX=${AMPS_PREFIX:-/opt/amps}
CONFIG_DIRECTORY=${AMPS_CONFIG_DIRECTORY:-/opt/etc/amps}
UNIT_DIRECTORY=${AMPS_UNIT_DIRECTORY:-/usr/lib/systemd/system}
STATE_DIRECTORY=${AMPS_STATE_DIRECTORY:-/var/lib/amps}
SERVICE_USER=${AMPS_USER:-amps}
PYTHON=${PYTHON:-python3}

# The contents of share/amps: only files of the distribution, no other files beside them.
SHARED_FILES="README.md actions.xml dead-letters.xml message-types.xml minimal.xml own_functions.py queues.xml
service.xml tls.xml transaction-log.xml amps.logrotate amps.service 60-amps-hugepages.conf 60-amps-limits.conf
60-amps-sysctl.conf"

usage() {
    cat <<USAGE
usage: sudo ./install-amps-daemon.sh [--help]

Installs the server into $PREFIX and as the service "amps", started at boot.
It runs as the system user $SERVICE_USER, which is made if it is missing. The configuration is
$CONFIG_DIRECTORY/config.xml; it is created from conf/service.xml if missing and never
overwritten. Data goes to $STATE_DIRECTORY. Installing again upgrades: a service that runs is
stopped meanwhile and started again; data that belongs to root gets the service's user as owner.

With a wheel of this version in dist/ (python -m pip wheel --no-deps -w dist .) no compiler is needed;
wheels of other packages beside it are used, too.

Environment: PYTHON (interpreter, default python3), AMPS_WHEEL (the wheel to install), AMPS_USER (an
existing user to run as), AMPS_PREFIX, AMPS_CONFIG_DIRECTORY, AMPS_UNIT_DIRECTORY and
AMPS_STATE_DIRECTORY change the places above. pip heeds its own: PIP_NO_INDEX, PIP_FIND_LINKS.
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

# --- checks before anything changes -----------------------------------------------------------------------------

SOURCE=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
[ -f "$SOURCE/conf/amps.service" ] || fail "conf/amps.service is not beside tools/; run the script from a source tree"
for directory in "$PREFIX" "$CONFIG_DIRECTORY" "$UNIT_DIRECTORY" "$STATE_DIRECTORY"; do
    case $directory in
        /*[!A-Za-z0-9_./+-]* | [!/]*) fail "$directory: write an absolute path of letters, digits and . _ + - only" ;;
        */../* | */..) fail "$directory: write a path without .." ;;
        / | /bin | /boot | /dev | /etc | /home | /lib | /opt | /proc | /root | /run | /sbin | /sys | /tmp | /usr | /var | /var/lib)
            [ "$directory" = "$UNIT_DIRECTORY" ] || fail "$directory belongs to the system; choose a directory of its own" ;;
    esac
done
if [ -e "$PREFIX" ] && [ ! -f "$PREFIX/pyvenv.cfg" ] && [ -n "$(ls -A "$PREFIX")" ]; then
    fail "$PREFIX holds something that is no installation of this server; move it away, or set AMPS_PREFIX"
fi
command -v "$PYTHON" >/dev/null 2>&1 || fail "$PYTHON is not installed; install Python 3.11 or newer, or set PYTHON"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$PYTHON is older than 3.11; set PYTHON to a newer one"
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || fail "$PYTHON cannot make virtual environments; install python3-venv"

VERSION=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' "$SOURCE/amps/version.py")
WHEEL=${AMPS_WHEEL:-}
if [ -z "$WHEEL" ]; then
    for found in "$SOURCE/dist/amps_server-$VERSION-"*.whl; do
        if [ -f "$found" ]; then WHEEL=$found; fi
    done
fi
[ -z "$WHEEL" ] || [ -f "$WHEEL" ] || fail "there is no wheel $WHEEL; correct AMPS_WHEEL"
if [ -z "$WHEEL" ]; then
    advice="or build a wheel where there is one (python -m pip wheel --no-deps -w dist .) and put it into $SOURCE/dist"
    command -v "${CC:-cc}" >/dev/null 2>&1 || fail "there is no C compiler; install one (gcc), $advice"
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
        || fail "the headers of $PYTHON are missing; install python3-dev, $advice"
fi

# True if the commands of this script to systemd apply to this installation's unit.
manages_services() {
    command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ] || return 1
    case $UNIT_DIRECTORY in
        /usr/lib/systemd/system | /lib/systemd/system | /etc/systemd/system | /usr/local/lib/systemd/system) return 0 ;;
        *) return 1 ;;
    esac
}

work=$(mktemp -d "${TMPDIR:-/tmp}/install-amps.XXXXXXXX")
was_running=no
finish() {
    status=$?
    rm -rf "$work"
    if [ "$status" -ne 0 ] && [ "$was_running" = yes ]; then
        echo "The service was stopped and does not run. When that is mended: systemctl start amps" >&2
    fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- the wheel, unless there is one: nothing of the running service changes yet ---------------------------------

if [ -z "$WHEEL" ]; then
    echo "Building $SOURCE (some minutes)"
    # Build from a copy of the package's sources. So the build leaves nothing in the tree, and products of earlier
    # builds, also of removed files, do not get into the wheel.
    mkdir "$work/source" "$work/wheel"
    (cd "$SOURCE" && tar --exclude='*.so' --exclude='*.c' --exclude='*.pyc' --exclude=__pycache__ --exclude='.*' \
        -cf - amps setup.py pyproject.toml README.md LICENSE) | tar -xf - -C "$work/source"
    "$PYTHON" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps -w "$work/wheel" "$work/source" \
        || fail "the package cannot be built; see what pip says above"
    WHEEL=$(ls "$work/wheel/"*.whl)
fi

# --- the user, and the running service ----------------------------------------------------------------------------

if ! id -u "$SERVICE_USER" >/dev/null 2>&1; then
    command -v useradd >/dev/null 2>&1 || fail "the user $SERVICE_USER is missing, and there is no useradd to make it; make it"
    useradd --system --user-group --home-dir "$STATE_DIRECTORY" --no-create-home --shell /usr/sbin/nologin "$SERVICE_USER" \
        || fail "the system user $SERVICE_USER cannot be made; make it, or set AMPS_USER to one that is there"
    echo "Made the system user $SERVICE_USER"
fi
[ "$(id -u "$SERVICE_USER")" -ne 0 ] || fail "the service does not run as root; set AMPS_USER to another user"
SERVICE_GROUP=$(id -gn "$SERVICE_USER")

as_service_user() {
    runuser -u "$SERVICE_USER" -- "$@"
}
command -v runuser >/dev/null 2>&1 || fail "runuser is not installed; install util-linux"
interpreter=$("$PYTHON" -c 'import os, sys; print(os.path.realpath(sys.executable))')
as_service_user test -x "$interpreter" \
    || fail "$SERVICE_USER may not run $interpreter; set PYTHON to an interpreter of the system, such as /usr/bin/python3"
case $interpreter in
    /home/* | /root/*) fail "the service does not see $interpreter; set PYTHON to one outside of /home and /root" ;;
esac

if manages_services && systemctl is-active --quiet amps.service; then
    was_running=yes
    echo "Stopping the service for the upgrade"
    systemctl stop amps.service
fi

# --- the program ----------------------------------------------------------------------------------------------------

echo "Installing $(basename "$WHEEL") into $PREFIX"
mkdir -p "$PREFIX" "$CONFIG_DIRECTORY" "$UNIT_DIRECTORY"
replaces=yes
if ! "$PREFIX/bin/python" -c 'import pip' >/dev/null 2>&1; then
    "$PYTHON" -m venv --clear "$PREFIX"
    replaces=
fi
pip() {
    "$PREFIX/bin/python" -m pip --disable-pip-version-check "$@"
}
pip install --quiet --upgrade --find-links "$(dirname "$WHEEL")" "$WHEEL" \
    || fail "the package cannot be installed; see what pip says above. Without a way to an index: put wheels of the packages
that are missing into $(dirname "$WHEEL") and set PIP_NO_INDEX=1"
# pip does not replace an installed package of the same version, which may be another build.
[ -z "$replaces" ] || pip install --quiet --force-reinstall --no-deps --no-index "$WHEEL"
"$PREFIX/bin/ampServer" --version >/dev/null || fail "the installation in $PREFIX does not run; see above"

rm -rf "$PREFIX/share/amps"
mkdir -p "$PREFIX/share/amps"
for name in $SHARED_FILES; do
    cp "$SOURCE/conf/$name" "$PREFIX/share/amps/"
done
chmod 644 "$PREFIX/share/amps/"*

# --- configuration and data: they belong to the service's user ------------------------------------------------------

mkdir -p "$STATE_DIRECTORY"
CONFIG=$CONFIG_DIRECTORY/config.xml
if [ -e "$CONFIG" ]; then
    echo "Keeping $CONFIG"
else
    sed "s|/var/lib/amps|$STATE_DIRECTORY|g" "$SOURCE/conf/service.xml" > "$work/config.xml"
    chown "root:$SERVICE_GROUP" "$work/config.xml"
    chmod 640 "$work/config.xml"
    mv "$work/config.xml" "$CONFIG"
    echo "Created $CONFIG"
fi
if ! as_service_user test -r "$CONFIG"; then
    chgrp "$SERVICE_GROUP" "$CONFIG"
    chmod g+r "$CONFIG"
    echo "Let the group $SERVICE_GROUP read $CONFIG"
fi

needs() {
    (cd "$STATE_DIRECTORY" && "$PREFIX/bin/python" -P -m amps.server.service_needs "$1" "$CONFIG")
}
# Do not follow symbolic links (-h): a former owner of the directory may have made one.
find "$STATE_DIRECTORY" ! -user "$SERVICE_USER" -exec chown -h "$SERVICE_USER:$SERVICE_GROUP" {} +
chmod 750 "$STATE_DIRECTORY"
needs directories > "$work/directories" || fail "$CONFIG cannot be used; correct it and run this again"
while IFS= read -r directory; do
    if [ ! -e "$directory" ]; then
        mkdir -p "$directory"
        chown "$SERVICE_USER:$SERVICE_GROUP" "$directory"
        echo "Made $directory"
    fi
done < "$work/directories"
needs owned > "$work/owned"
while IFS= read -r path; do
    chown -h "$SERVICE_USER:$SERVICE_GROUP" "$path"
done < "$work/owned"

(cd "$STATE_DIRECTORY" && as_service_user "$PREFIX/bin/ampServer" --verify-config "$CONFIG") > "$work/verdict" || {
    cat "$work/verdict" >&2
    fail "$SERVICE_USER cannot use $CONFIG; correct it, or let $SERVICE_USER read the files that it names, and run this again"
}
grep ': warning: ' "$work/verdict" || true
(cd "$STATE_DIRECTORY" && as_service_user "$PREFIX/bin/python" -P -m amps.server.service_needs check "$CONFIG") \
    || fail "let $SERVICE_USER write there (chown), or name other places in $CONFIG, and run this again"

# --- the unit -------------------------------------------------------------------------------------------------------

sed -e "s|/opt/amps/|$PREFIX/|g" -e "s|/opt/etc/amps|$CONFIG_DIRECTORY|g" -e "s|/var/lib/amps|$STATE_DIRECTORY|g" \
    -e "s|^User=.*|User=$SERVICE_USER|" -e "s|^Group=.*|Group=$SERVICE_GROUP|" \
    "$SOURCE/conf/amps.service" > "$UNIT_DIRECTORY/amps.service"
echo "Installed $UNIT_DIRECTORY/amps.service"
needs drop-in > "$work/needs.conf"
if [ -s "$work/needs.conf" ]; then
    mkdir -p "$UNIT_DIRECTORY/amps.service.d"
    cat "$work/needs.conf" > "$UNIT_DIRECTORY/amps.service.d/needs.conf"
    echo "Installed $UNIT_DIRECTORY/amps.service.d/needs.conf, for the needs of $CONFIG"
else
    rm -f "$UNIT_DIRECTORY/amps.service.d/needs.conf"
    rmdir "$UNIT_DIRECTORY/amps.service.d" 2>/dev/null || true
fi

if manages_services; then
    systemctl daemon-reload
    systemctl enable amps.service
    if [ "$was_running" = yes ]; then
        systemctl start amps.service
        echo "The service runs again"
    else
        echo "Start it with: systemctl start amps"
    fi
else
    echo "systemd does not run here: enable and start the service where it does"
fi
echo "Host settings to consider are in $PREFIX/share/amps"
