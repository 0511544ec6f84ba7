"""A few seconds of fuzzing with fixed seeds, and inputs that once revealed errors."""

import time

import pytest

from tests.fuzz import codec, queues
from tests.fuzz.server import OPTIONS, Witness, attack
from tests.support.server import StartServer

CORPUS = [
    b"", b"{", b"}", b"{}", b"{ }", b"{}}", b'{"', b'{"c', b'{"c"', b'{"c":', b'{"c":"', b'{"c":"p"',
    b'{"c":"p"}', b'{"c":"p"}}', b'{"c":"p",}', b'{,"c":"p"}', b'{"c":p}', b'{"c":-}', b'{"c":--1}',
    b'{"s":1}', b'{"s":"1"}', b'{"s":" 1 "}', b'{"s":"1_0"}', b'{"s":"+1"}', '{"s":"٣"}'.encode(),
    b'{"s":01}', b'{"s":1.0}', b'{"s":1e3}', b'{"s":18446744073709551615}', b'{"s":18446744073709551616}',
    b'{"s":"' + b"9" * 40 + b'"}', b'{"s":null}', b'{"t":"\\u00e9"}', b'{"t":"\\ud83d\\ude42"}',
    b'{"t":"\\ud800"}', b'{"t":"\\u12"}', b'{"t":"\\q"}', b'{"t":"\xff"}', b'{"t":"\0\\u00e4"}',
    b'{"t":"\xc3\xa9"}', b'{"t":"\xed\xa0\x80"}', b'{"t":"\n"}', b'{"t":"\0"}', b'{"t":"\\"}',
    b'{"t":"\\\\"}', b'{"t":"}"}x', b'{"zz":"\\q","c":"p"}', b'{"zz":"\xff","c":"p"}', b'{"\\u0063":"p"}',
    b'{"c":"a","c":"b"}', b'{"cmd":"a","c":"b"}', b'{"t":"\\q","t":"x"}', b'{"send_keys":true}',
    b'{"send_keys":"false"}', b'{"send_keys":1}', b'{"c":truefalse}', b'{"c":tru}', b'{"order_by":"x"}',
    b'{"v":"1","version":"2"}', b"{\t\r\n }", b'{"c"\t:\r\n"p" }x',
]  # fmt: skip


@pytest.mark.parametrize("payload", CORPUS)
def test_fuzz_corpus_of_headers(payload: bytes) -> None:
    codec.check_header(payload)


def test_fuzz_codec_with_fixed_seeds() -> None:
    for seed in range(6000):
        try:
            codec.run(seed)
        except Exception as error:
            raise AssertionError(f"python -m tests.fuzz --target codec --seed {seed}: {error}") from error


def test_fuzz_live_server_with_fixed_seeds(start_server: StartServer) -> None:
    """Bounded by number and by time; the witness is checked after every attack."""
    server = start_server(**OPTIONS)
    witness = Witness(server)
    witness.check()
    end = time.monotonic() + 6
    try:
        for seed in range(400):
            try:
                attack(server, seed)
                witness.check()
            except Exception as error:
                raise AssertionError(
                    f"python -m tests.fuzz --target server --seed {seed}: {error}"
                ) from error
            if time.monotonic() > end and seed >= 50:
                break
    finally:
        witness.close()


def test_fuzz_queues_with_fixed_seeds(start_server: StartServer) -> None:
    """Bounded by number and by time, as above."""
    server = start_server(**queues.OPTIONS)
    witness = Witness(server)
    end = time.monotonic() + 6
    try:
        for seed in range(300):
            try:
                queues.attack_queues(server, seed)
                witness.check()
            except Exception as error:
                raise AssertionError(
                    f"python -m tests.fuzz --target queues --seed {seed}: {error}"
                ) from error
            if time.monotonic() > end and seed >= 50:
                break
    finally:
        witness.close()
