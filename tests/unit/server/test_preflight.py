"""HTTP preflight: bytes in, answer out."""

import pytest

from amps.server.transport.preflight import REQUEST_BYTES_MAX, Answer, answer

UPGRADE = b"GET /amps/json HTTP/1.1\r\nHost: example\r\nConnection: Upgrade\r\nUpgrade: amps\r\n\r\n"


def test_an_upgrade_is_answered_with_101_and_its_token() -> None:
    found = answer(UPGRADE)
    assert found == Answer(
        len(UPGRADE), b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: amps\r\nConnection: Upgrade\r\n\r\n"
    )
    assert not found.close


@pytest.mark.parametrize("line", [b"upgrade: x", b"UPGRADE:x", b"Upgrade :   x  ", b"uPgRaDe:\tx"])
def test_the_header_is_found_in_any_spelling(line: bytes) -> None:
    found = answer(b"GET / HTTP/1.1\r\n" + line + b"\r\n\r\n")
    assert found.response.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nUpgrade: x\r\n" in found.response


def test_frames_after_the_request_are_left_for_the_parser() -> None:
    assert answer(UPGRADE + b'\0\0\0\x10{"c":"heartbeat"').consumed == len(UPGRADE)


@pytest.mark.parametrize("length", range(4, len(UPGRADE)))
def test_a_request_that_is_not_whole_waits(length: int) -> None:
    assert answer(UPGRADE[:length]) == Answer(0)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
        b"GET / HTTP/1.1\r\nUpgrade:\r\n\r\n",
        b"GET /?Upgrade: amps HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-Upgrade: amps\r\n\r\n",
    ],
)
def test_a_request_without_upgrade_gets_426_and_the_end(request_bytes: bytes) -> None:
    found = answer(request_bytes)
    assert found.consumed == len(request_bytes)
    assert found.response.startswith(b"HTTP/1.1 426 ")
    assert found.response.endswith(b"\r\n\r\n")
    assert found.close


def test_an_endless_request_gets_431_and_the_end() -> None:
    endless = b"GET /" + b"x" * REQUEST_BYTES_MAX
    assert answer(endless[: REQUEST_BYTES_MAX - 1]) == Answer(0)
    found = answer(endless[:REQUEST_BYTES_MAX])
    assert found.consumed == REQUEST_BYTES_MAX
    assert found.response.startswith(b"HTTP/1.1 431 ")
    assert found.close
