"""Variables of actions: `{{NAME}}` in the text of an option (operations.md §9.1).

Values are texts that may contain any bytes: bytes that are not UTF-8 are kept as surrogates (`to_bytes`, `from_bytes`).
So `{{AMPS_BYTE_FF}}` is that single byte in the message that contains it.
"""

import re
from datetime import UTC, datetime

from amps.config.action_modules import VARIABLE

TEXT_LENGTH_MAX = 64 * 2**20
"""Maximum length of an option, for events whose runs raise each other with ever longer texts."""
VARIABLES_MAX = 10_000

_BYTE = re.compile(r"AMPS_BYTE_([0-9A-F]{2})")
_TOO_LONG = f"with its variables it is longer than {TEXT_LENGTH_MAX} characters"


def always_present(instance_name: str, now_s: float) -> dict[str, str]:
    """The variables that every action has, for its starting time."""
    return {
        "AMPS_INSTANCE_NAME": instance_name,
        "AMPS_DATETIME": datetime.fromtimestamp(now_s, UTC)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z"),
        "AMPS_UNIX_TIMESTAMP": str(int(now_s)),
    }


def substitute(text: str, variables: dict[str, str]) -> str:
    """The text with variables substituted; an undefined variable is empty. Raises ValueError if it gets too long."""
    if "{{" not in text:
        return text
    pieces: list[str] = []
    length = at = 0
    for match in VARIABLE.finditer(text):
        for piece in (text[at : match.start()], _value(match[1].strip(), variables)):
            pieces.append(piece)
            length += len(piece)
        if length > TEXT_LENGTH_MAX:
            raise ValueError(_TOO_LONG)
        at = match.end()
    pieces.append(text[at:])
    return "".join(pieces)


def _value(name: str, variables: dict[str, str]) -> str:
    byte = _BYTE.fullmatch(name)
    if byte is not None:
        return from_bytes(bytes.fromhex(byte[1]))
    return variables.get(name, "")


def to_bytes(text: str) -> bytes:
    """The bytes of a value."""
    return text.encode("utf-8", "surrogateescape")


def from_bytes(data: bytes) -> str:
    """A value made of bytes."""
    return data.decode("utf-8", "surrogateescape")
