"""Reading values: units, booleans, addresses, modes, versions, and the texts of refusals."""

import contextlib
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps.config import units

READERS: list[Callable[[str], object]] = [
    units.read_interval,
    units.read_size,
    units.read_rotation_threshold,
    units.read_count,
    units.read_fraction,
    units.read_boolean,
    units.read_file_mode,
    units.read_address,
    units.read_version,
]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("100ms", 0.1),
        ("100MS", 0.1),
        ("1us", 1e-6),
        ("250ns", 250e-9),
        ("2S", 2.0),
        ("3m", 180.0),
        ("3M", 180.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
        ("1w", 604800.0),
        (" 10 ms ", 0.01),
        ("0", 0.0),
    ],
)
def test_intervals(text: str, seconds: float) -> None:
    assert units.read_interval(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("1kb", 1024),
        ("10MB", 10485760),
        ("10mb", 10485760),
        ("10M", 10_000_000),
        ("2k", 2000),
        ("1GB", 2**30),
        ("1.5TB", 3 * 2**39),
        ("0.5G", 500_000_000),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert units.read_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("10k", 10_000), ("250MB", 250_000_000), ("0.5T", 500_000_000_000), ("77", 77), ("1g", 10**9)],
)
def test_rotation_thresholds_are_decimal(text: str, size_bytes: int) -> None:
    assert units.read_rotation_threshold(text) == size_bytes


@pytest.mark.parametrize("text", ["true", "TRUE", "enabled", "Enabled", "1", "yes", "on"])
def test_true(text: str) -> None:
    assert units.read_boolean(text) is True


@pytest.mark.parametrize("text", ["false", "False", "disabled", "0", "no", "OFF"])
def test_false(text: str) -> None:
    assert units.read_boolean(text) is False


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9007", (None, 9007)),
        ("0", (None, 0)),
        ("127.0.0.1:9007", ("127.0.0.1", 9007)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::]:9007", ("::", 9007)),
        ("[fe80::1%eth0]:9007", ("fe80::1%eth0", 9007)),
        ("localhost:9007", ("localhost", 9007)),
        ("host-1.example.org:65535", ("host-1.example.org", 65535)),
    ],
)
def test_addresses(text: str, address: tuple[str | None, int]) -> None:
    assert units.read_address(text) == address


@pytest.mark.parametrize(
    ("text", "version"), [("5", (5,)), ("5.0", (5, 0)), ("5.3.4.78.928656.fa0d0b4", (5, 3, 4, 78, 928656))]
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    assert units.read_version(text) == version


@pytest.mark.parametrize(
    ("read", "text", "advice"),
    [
        (units.read_interval, "10 parsecs", "ns us ms s m h d w"),
        (units.read_interval, "-5s", "negative"),
        (units.read_interval, "", "interval"),
        (units.read_interval, "1MB", "interval"),
        (units.read_interval, "50000w", "hundred years"),
        (units.read_interval, "9" * 30 + "w", "hundred years"),
        (units.read_size, "12 bananas", "kb mb gb tb"),
        (units.read_size, "1e9", "size"),
        (units.read_size, "9" * 60, "too large"),
        (units.read_count, "1.5", "whole number"),
        (units.read_count, "two", "whole number"),
        (units.read_fraction, "0%", "percentage"),
        (units.read_fraction, "101%", "percentage"),
        (units.read_boolean, "maybe", "enabled or disabled"),
        (units.read_file_mode, "0999", "octal"),
        (units.read_file_mode, "rw-r--r--", "octal"),
        (units.read_address, "::1:9007", "[IPv6 address]:port"),
        (units.read_address, "65536", "65535"),
        (units.read_address, "host:", "port"),
        (units.read_address, ":9007", "address"),
        (units.read_version, "five", "5.3.4"),
        (units.read_version, "5.x", "5.3.4"),
    ],
)
def test_a_refusal_gives_valid_values(read: Callable[[str], object], text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)):
        read(text)


@given(
    text=st.text(max_size=80) | st.from_regex(r"[0-9.+-]{0,30}[a-zA-Z%]{0,4}"), read=st.sampled_from(READERS)
)
def test_readers_raise_value_errors_only(text: str, read: Callable[[str], object]) -> None:
    with contextlib.suppress(ValueError):
        read(text)
