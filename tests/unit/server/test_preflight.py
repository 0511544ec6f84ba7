"""HTTP preflight: from the bytes received to the answer."""

import pytest

from amps.server.transport.preflight import REQUEST_BYTES_MAX, Answer, answer

UPGRADE = b"GET /amps/json HTTP/1.1\r\nHost: example\r\nConnection: Upgrade\r\nUpgrade: amps\r\n\r\n"


def check_told(response: bytes, *words: bytes) -> None:
    """Check that this is a whole HTTP answer whose text contains this one."""
    head, _, text = response.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(text)}".encode() in head.split(b"\r\n")
    assert all(word in text for word in words)


def test_an_upgrade_is_answered_with_101_and_its_token() -> None:
    found = answer(UPGRADE, "tcp")
    assert found == Answer(
        len(UPGRADE), b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: amps\r\nConnection: Upgrade\r\n\r\n"
    )
    assert found.refusal is None


@pytest.mark.parametrize("line", [b"upgrade: x", b"UPGRADE:x", b"Upgrade :   x  ", b"uPgRaDe:\tx"])
def test_the_header_is_found_in_any_spelling(line: bytes) -> None:
    found = answer(b"GET / HTTP/1.1\r\n" + line + b"\r\n\r\n", "tcp")
    assert found.response.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nUpgrade: x\r\n" in found.response


def test_frames_after_the_request_are_left_for_the_parser() -> None:
    assert answer(UPGRADE + b'\0\0\0\x10{"c":"heartbeat"', "tcp").consumed == len(UPGRADE)


@pytest.mark.parametrize("length", range(4, len(UPGRADE)))
def test_an_incomplete_request_waits(length: int) -> None:
    assert answer(UPGRADE[:length], "tcp") == Answer(0)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
        b"GET / HTTP/1.1\r\nUpgrade:\r\n\r\n",
        b"GET /?Upgrade: amps HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-Upgrade: amps\r\n\r\n",
    ],
)
def test_a_request_without_upgrade_gets_426_and_a_close(request_bytes: bytes) -> None:
    found = answer(request_bytes, "tcp")
    assert found.consumed == len(request_bytes)
    assert found.response.startswith(b"HTTP/1.1 426 ")
    check_told(found.response, b"tcp://")
    assert found.refusal is not None


def test_an_endless_request_gets_431_and_a_close() -> None:
    endless = b"GET /" + b"x" * REQUEST_BYTES_MAX
    assert answer(endless[: REQUEST_BYTES_MAX - 1], "tcp") == Answer(0)
    found = answer(endless[:REQUEST_BYTES_MAX], "tcp")
    assert found.consumed == REQUEST_BYTES_MAX
    assert found.response.startswith(b"HTTP/1.1 431 ")
    assert found.refusal is not None


HANDSHAKE = (
    b"GET /amps/json HTTP/1.1\r\nHost: example\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
    b"%s: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.mark.parametrize("token", [b"websocket", b"WebSocket"])
@pytest.mark.parametrize("key", [b"Sec-WebSocket-Key", b"sec-websocket-key"])
@pytest.mark.parametrize("scheme", ["tcp", "tcps", "unix"])
def test_a_websocket_handshake_gets_400_and_a_close(token: bytes, key: bytes, scheme: str) -> None:
    found = answer(HANDSHAKE % (token, key), scheme)
    assert found.response.startswith(b"HTTP/1.1 400 ")
    check_told(found.response, b"WebSocket", f" {scheme}://".encode())
    assert found.refusal == "a WebSocket handshake on a port without WebSocket"


def test_a_preflight_may_name_the_token_websocket() -> None:
    found = answer(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "tcp")
    assert found.response.startswith(b"HTTP/1.1 101 ")
