"""CRC32C: known vectors, equal results with and without the processor's instruction, and the definition."""

import ctypes
import random
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import amps._core
from amps._core.journal.reader import FILE_HEADER_SIZE, build_file_header
from amps._core.journal.writer import intact_record
from tests.support.records import RecordParts, crc32c

VECTORS = {
    b"": 0x00000000,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}
"""RFC 3720, appendix B.4, and the usual check value."""

SHIM = """
#include "platform.h"
uint32_t with_hardware(const uint8_t *data, size_t length) { return ~crc32c_hardware(~0u, data, length); }
uint32_t in_software(const uint8_t *data, size_t length) { return ~crc32c_software(~0u, data, length); }
uint32_t as_used(const uint8_t *data, size_t length) { return crc32c(data, length); }
int has_hardware(void) { return crc32c_has_hardware(); }
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The header's functions, compiled on their own."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    compiler = compiler if shutil.which(compiler) else "cc"
    if shutil.which(compiler) is None:
        pytest.skip("needs a C compiler")
    directory = tmp_path_factory.mktemp("crc")
    (directory / "shim.c").write_text(SHIM)
    include = Path(amps._core.__path__[0]) / "shm"
    subprocess.run(
        [compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", f"-I{include}", "-o", "shim.so", "shim.c"],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    library = ctypes.CDLL(str(directory / "shim.so"))
    for name in ("with_hardware", "in_software", "as_used"):
        function = getattr(library, name)
        function.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        function.restype = ctypes.c_uint32
    return library


@pytest.mark.parametrize("data", VECTORS, ids=bytes.hex)
def test_checksum_known_vectors(shim: ctypes.CDLL, data: bytes) -> None:
    assert crc32c(data) == VECTORS[data]
    assert shim.in_software(data, len(data)) == VECTORS[data]
    assert shim.as_used(data, len(data)) == VECTORS[data]


def test_checksum_software_and_hardware_agree(shim: ctypes.CDLL) -> None:
    """Lengths around the word size and the limits of the three lanes, every alignment, and long data."""
    if not shim.has_hardware():
        pytest.skip("this processor has no CRC32C instruction")
    chance = random.Random(1)
    for length in [*range(400), *range(3060, 3180), 4095, 65536, 1_000_003]:
        data = chance.randbytes(length)
        expected = shim.in_software(data, length)
        assert shim.with_hardware(data, length) == expected
        if length < 5000:
            assert crc32c(data) == expected


def test_checksum_of_every_length_at_every_alignment(shim: ctypes.CDLL) -> None:
    """Compared with the definition byte by byte, across the limits of the lanes and of the prefetched data."""
    data = random.Random(2).randbytes(4097)
    expected = [crc32c(b"")]
    for byte in data:
        # The checksum of one byte more follows from the previous one, as in the definition.
        register = expected[-1] ^ 0xFFFFFFFF ^ byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
        expected.append(register ^ 0xFFFFFFFF)
    for begin in range(8):
        buffer = ctypes.create_string_buffer(bytes(begin) + data, begin + len(data))
        at = ctypes.cast(ctypes.byref(buffer, begin), ctypes.c_char_p)
        for name in ("as_used", "in_software"):
            function = getattr(shim, name)
            assert [function(at, length) for length in range(4097)] == expected[:4097], (name, begin)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_checksum_of_a_record_is_that_of_its_definition(size: int) -> None:
    """The compiled modules accept the CRC of this file's own implementation, and no other value."""
    parts = RecordParts(payload=b"p" * size, position=FILE_HEADER_SIZE, txid=5, publisher_id=1, sequence=1)
    image = bytearray(FILE_HEADER_SIZE) + parts.to_bytes(sealed=True) + bytes(16)
    assert intact_record(image, 0, FILE_HEADER_SIZE) == (1, 5)
    image[FILE_HEADER_SIZE + 4] ^= 1
    assert intact_record(image, 0, FILE_HEADER_SIZE) is None


def test_checksum_of_a_file_header() -> None:
    page = build_file_header(3, 1 << 20, 5, 6, 7, 8, "inst", True)
    assert int.from_bytes(page[12:16], "little") == crc32c(page[16:584])
