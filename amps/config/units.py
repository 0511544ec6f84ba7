"""Reading values: intervals, sizes, counts, booleans, percentages, addresses, file modes.

Every reader takes the text of an element and returns a value, or raises ValueError with a text that states
the error *and* the correct form. Suffixes are not case-sensitive. Sizes in `kb mb gb tb` are powers
of 1024, a bare `k`, `M`, `G` or `T` is a power of 1000; after an interval `m` (in either case) is minutes.
"""

import math
import re
from decimal import Decimal

_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*([A-Za-z%]*)\s*", re.ASCII)

_INTERVAL_NS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_ROTATION = _DECIMAL | {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

_TRUE = frozenset({"true", "enabled", "1", "yes", "on"})
_FALSE = frozenset({"false", "disabled", "0", "no", "off"})

INTERVAL_S_MAX = 100 * 365 * 86400
"""The longest interval; in nanoseconds it still fits into a signed 64-bit integer."""
DELAY_MAX_S = 3653 * 86400.0
"""The longest delay of a message: ten years."""

_LARGEST = 10**30  # larger than any useful value; keeps huge exponents out of the arithmetic


def _split(text: str, wanted: str) -> tuple[Decimal, str]:
    """Return the number and the lower-case suffix of a text such as `1.5GB`."""
    match = _NUMBER.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(f"{shown(text)} is not {wanted}")
    number = Decimal(match[1])
    if number < 0:
        raise ValueError(f"{shown(text)} is negative; write {wanted}")
    if number > _LARGEST:
        raise ValueError(f"{shown(text)} is too large; write {wanted}")
    return number, match[2].lower()


def shown(text: str) -> str:
    """Return a text in the form for findings: quoted, and cut if it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def read_interval(text: str) -> float:
    """Read an interval; return seconds, up to INTERVAL_S_MAX. A number without a suffix is in seconds."""
    wanted = "an interval: a number with one of ns us ms s m h d w, such as 100ms"
    number, suffix = _split(text, wanted)
    factor = _INTERVAL_NS.get(suffix or "s")
    if factor is None:
        raise ValueError(f"{shown(text)} is not {wanted}")
    interval_s = float(number * factor / 10**9)
    if interval_s > INTERVAL_S_MAX:
        raise ValueError(f"{shown(text)} is longer than a hundred years; write {wanted}")
    return interval_s


def read_delay(text: str) -> float:
    """Read the delay of a message: an interval of up to DELAY_MAX_S; return seconds."""
    delay_s = read_interval(text)
    if delay_s > DELAY_MAX_S:
        raise ValueError(f"{shown(text)} is longer than the maximum of ten years; write 3650d or less")
    return delay_s


def read_size(text: str) -> int:
    """Read a size; return bytes, rounded up: `kb mb gb tb` are powers of 1024, `k M G T` powers of 1000."""
    return _scaled(
        text, _DECIMAL | _BINARY, "a size: a number of bytes, or with one of kb mb gb tb, such as 512MB"
    )


def read_rotation_threshold(text: str) -> int:
    """Read a size; return bytes: every suffix is a power of 1000 here, also if written as `250MB`."""
    return _scaled(text, _ROTATION, "a size: a number of bytes, or with one of k m g t, such as 250M")


def read_count(text: str) -> int:
    """Read a whole number, also in the form `10k` or `1M`."""
    wanted = "a whole number, such as 2 or 10k"
    number, suffix = _split(text, wanted)
    scaled = number * _DECIMAL.get(suffix, 0) if suffix in _DECIMAL else None
    if scaled is None or scaled != int(scaled):
        raise ValueError(f"{shown(text)} is not {wanted}")
    return int(scaled)


def _scaled(text: str, factors: dict[str, int], wanted: str) -> int:
    number, suffix = _split(text, wanted)
    if suffix not in factors:
        raise ValueError(f"{shown(text)} is not {wanted}")
    return math.ceil(number * factors[suffix])


def read_fraction(text: str) -> float:
    """Read a percentage; return a share between 0 and 1."""
    wanted = "a percentage above 0% and up to 100%, such as 50%"
    number, suffix = _split(text, wanted)
    if suffix not in ("", "%") or not 0 < number <= 100:
        raise ValueError(f"{shown(text)} is not {wanted}")
    return float(number / 100)


def read_size_or_fraction(text: str) -> int | float:
    """Read a size or a percentage; return bytes (an int), or a share between 0 and 1 (a float)."""
    try:
        return read_fraction(text) if text.rstrip().endswith("%") else read_size(text)
    except ValueError:
        raise ValueError(
            f"{shown(text)} is neither a size nor a percentage above 0% and up to 100%; write one such as 20GB or 10%"
        ) from None


def read_boolean(text: str) -> bool:
    """Read `true/false`, `enabled/disabled`, `1/0`, `yes/no` or `on/off`, in any case."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{shown(text)} is neither true nor false; write enabled or disabled, or true or false")


def read_file_mode(text: str) -> int:
    """Read an octal file mode such as 0640."""
    if not re.fullmatch(r"(0o)?[0-7]{3,4}", text):
        raise ValueError(f"{shown(text)} is not a file mode; write it in octal, such as 0640")
    return int(text.removeprefix("0o"), 8)


def read_address(text: str) -> tuple[str | None, int]:
    """Read an `InetAddr`; return host (None for every address of this host) and port."""
    wanted = "an address; write port, address:port or [IPv6 address]:port, such as 127.0.0.1:9007"
    host, colon, port_text = text.strip().rpartition(":")
    if not re.fullmatch(r"\d{1,5}", port_text, re.ASCII) or int(port_text) > 65535:
        raise ValueError(f"{shown(text)} is not {wanted}; a port lies between 0 and 65535")
    if not colon:
        return None, int(port_text)
    if host.startswith("[") and host.endswith("]") and re.fullmatch(r"[0-9A-Fa-f:.]+(%\w+)?", host[1:-1]):
        return host[1:-1], int(port_text)
    if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", host):
        raise ValueError(f"{shown(text)} is not {wanted}")
    return host, int(port_text)


def read_version(text: str) -> tuple[int, ...]:
    """Read a possibly partial version such as 5.3 or 5.3.4.78.928656.fa0d0b4; return its leading numbers."""
    parts = text.split(".")
    numbers: list[int] = []
    for part in parts[:5]:
        if not re.fullmatch(r"\d{1,18}", part, re.ASCII):
            break
        numbers.append(int(part))
    if not numbers or (len(numbers) < len(parts) and len(numbers) < 4):
        raise ValueError(f"{shown(text)} is not a version; write numbers with dots between, such as 5.3.4")
    return tuple(numbers)
