"""Reading messages from files."""

import gzip
import io
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps.cli import records
from amps.cli.records import RecordError, RecordSource, split_records


@given(st.lists(st.binary(min_size=1, max_size=40).filter(lambda record: b"\n" not in record)), st.booleans())
def test_records_are_read_as_they_were_written(written: list[bytes], ends_with_delimiter: bool) -> None:
    data = b"\n".join(written) + (b"\n" if ends_with_delimiter else b"")
    assert list(split_records(io.BytesIO(data), 10)) == written


@given(st.binary(max_size=200), st.integers(1, 9))
def test_the_size_of_reads_changes_nothing(data: bytes, chunk_bytes: int) -> None:
    class Dribble(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or chunk_bytes, chunk_bytes))

    expected = [record for record in data.split(b"\n") if record]
    assert list(split_records(Dribble(data), 10)) == expected


def test_client_17_delimiter_is_a_decimal_code(tmp_path: Path) -> None:
    """client.md §17, option delimiter."""
    path = tmp_path / "records"
    path.write_bytes(b"a\nb|c|")
    assert list(RecordSource(path, ord("|"))) == [b"a\nb", b"c"]


def test_empty_records_are_left_out() -> None:
    assert list(split_records(io.BytesIO(b"\n\na\n\nb\n\n"), 10)) == [b"a", b"b"]


def test_a_record_beyond_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 10)
    with pytest.raises(RecordError, match="-delimiter"):
        list(split_records(io.BytesIO(b"x" * 11), 10))


def test_gzip_files_are_unpacked_and_progress_ends_at_their_size(tmp_path: Path) -> None:
    path = tmp_path / "records.json.gz"
    path.write_bytes(gzip.compress(b"a\nb\n" * 1000))
    source = RecordSource(path, 10)
    assert list(source) == [b"a", b"b"] * 1000
    assert source.consumed_bytes == source.total_bytes == path.stat().st_size


def test_a_truncated_gzip_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "records.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 1000)[:-20])
    with pytest.raises(RecordError, match=r"records\.gz"):
        list(RecordSource(path, 10))


def damaged_in_the_middle(data: bytes) -> bytes:
    half = len(data) // 2
    return data[:half] + bytes(255 - byte for byte in data[half : half + 40]) + data[half + 40 :]


def test_damaged_archives_are_errors_that_name_the_file(tmp_path: Path) -> None:
    noise = random.Random(5).randbytes(50_000).hex().encode()
    (tmp_path / "x.gz").write_bytes(damaged_in_the_middle(gzip.compress(noise)))
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1", noise)
    (tmp_path / "x.zip").write_bytes(damaged_in_the_middle((tmp_path / "x.zip").read_bytes()))
    for name in ("x.gz", "x.zip"):
        with pytest.raises(RecordError, match=name):
            list(RecordSource(tmp_path / name, 10))


def test_an_encrypted_archive_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1", "secret")
    data = bytearray(path.read_bytes())
    data[6] |= 1  # general purpose flag: encrypted, in the member's header and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(RecordError, match="unpack it"):
        list(RecordSource(path, 10))


def test_a_file_that_cannot_be_read_is_an_error_that_names_it() -> None:
    class Failing(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(RecordError, match="standard input: Input/output error"):
        list(RecordSource(None, 10, Failing()))


def test_client_17_zip_members_1_2_are_one_message_each_in_numeric_order(tmp_path: Path) -> None:
    """client.md §17, option file: a ZIP with top-level entries 1, 2, …."""
    path = tmp_path / "dump.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in (10, 2, 1):
            archive.writestr(str(number), f"message\n{number}")
    source = RecordSource(path, 10)
    assert list(source) == [b"message\n1", b"message\n2", b"message\n10"]
    assert source.consumed_bytes == source.total_bytes


def test_client_17_of_a_zip_with_numbered_members_nothing_else_is_read(tmp_path: Path) -> None:
    """client.md §17, option file: top-level entries only."""
    path = tmp_path / "dump.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("readme.txt", "2", "inner/1", "01", "1"):
            archive.writestr(name, f"message {name}")
    source = RecordSource(path, 10)
    assert list(source) == [b"message 1", b"message 2"]
    assert source.left_out == ["readme.txt", "inner/1", "01"]
    assert source.consumed_bytes == source.total_bytes == len("message 1message 2")


def test_zip_members_with_other_names_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "tables.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("b.json", "1\n2\n")
        archive.writestr("a.json", "3")
    assert list(RecordSource(path, 10)) == [b"1", b"2", b"3"]


def test_a_file_that_is_no_zip_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"no archive")
    with pytest.raises(RecordError, match=r"x\.zip"):
        list(RecordSource(path, 10))


def test_a_plain_file_shows_progress_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 40_000)
    source = RecordSource(path, 10)
    reading = iter(source)
    next(reading)
    assert 0 < source.consumed_bytes < path.stat().st_size
    assert sum(1 for _ in reading) == 40_000
    assert source.consumed_bytes == source.total_bytes == path.stat().st_size
