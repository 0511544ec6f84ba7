"""`amps_bio_perf_test` and `amps storage-test`: transaction_log.md §16.4, operations.md §11."""

import csv
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from amps.journal import storage_test
from amps.journal.storage_test import TestFile, Workload, run_workload
from tests.support.server import package_path, wait_until
from tests.support.utilities import TIMEOUT_S, Ran

FIGURES = [
    "Elapsed time", "Writer thread count", "Batch size", "Submit size", "Write size", "Submit count", "Read count",
    "Write count", "Submit rate", "Write rate", "Actual read mix", "Mean write latency",
]  # fmt: skip


def command(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def run(module: str, directory: Path, *arguments: object) -> Ran:
    result = subprocess.run(
        command(module, *arguments),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": package_path(), "COLUMNS": "120"},
        check=False,
    )
    errors = result.stderr.decode()
    assert "Traceback" not in errors, errors
    return Ran(result.returncode, result.stdout, errors)


def perf_test(directory: Path, *arguments: object) -> Ran:
    return run("amps.cli.utilities.bio_perf_test", directory, *arguments)


def figures(ran: Ran) -> dict[str, str]:
    pairs = (line.partition(" : ") for line in ran.lines)
    return {label.strip(): value for label, colon, value in pairs if colon}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_transaction_log_16_4_perf_test_prints_and_keeps_its_figures(tmp_path: Path) -> None:
    """transaction_log.md §16.4: the printed values, two CSV files that are created, then added to."""
    ran = perf_test(tmp_path, "-b", 10, "-m", 256, "-s", 2, "-r", 50, "-f", tmp_path / "data")
    assert ran.status == 0, ran.errors
    found = figures(ran)
    assert list(found) == FIGURES
    assert found["Writer thread count"] == "1"
    assert found["Batch size"] == "10 messages"
    assert found["Submit size"] == "2560 bytes"
    assert found["Write size"] == "4096 bytes"
    assert (found["Write count"], found["Read count"], found["Submit count"]) == ("512", "512", "1024")
    assert found["Actual read mix"] == "50.0 %"
    latencies, throughput = (tmp_path / f"amps_bio_perf_{kind}.csv" for kind in ("latency", "throughput"))
    assert len(rows(latencies)) == 512
    assert all(float(row["latency_us"]) > 0 for row in rows(latencies))
    assert rows(throughput)[-1]["bytes_written"] == str(2 << 20)
    assert (
        perf_test(tmp_path, "--batch_size=1", "--message_size=128K", "--file_size=1", "--file=x").status == 0
    )
    assert len(rows(latencies)) == 512 + 8
    assert rows(throughput)[-1]["write_size"] == str(128 << 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == [latencies.name, throughput.name]


@pytest.mark.parametrize(
    "arguments",
    [
        "-b 0",
        "-b 257",
        "-m 255",
        "-m 300",
        "-m 129K",
        "-m x",
        "-s 0",
        "-s 8193",
        "-r 100",
        "-b 256 -m 128K -s 1",
    ],
)
def test_transaction_log_16_4_limits(tmp_path: Path, arguments: str) -> None:
    """transaction_log.md §16.4"""
    assert perf_test(tmp_path, *arguments.split()).status == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("precious")
    ran = perf_test(tmp_path, "-s", 1, "-f", data)
    assert ran.status == 2
    assert f"{data} exists already" in ran.errors
    table = tmp_path / "amps_bio_perf_latency.csv"
    table.write_text("a,b\n1,2\n")
    ran = perf_test(tmp_path, "-s", 1)
    assert ran.status == 2
    assert table.name in ran.errors
    table.unlink()
    plot = tmp_path / "plot.svg"
    plot.write_text("precious")
    ran = run("amps.cli.main", tmp_path, "storage-test", "-s", 1, "-plot", plot)
    assert ran.status == 2
    assert "-overwrite" in ran.errors
    assert data.read_text() == plot.read_text() == "precious"
    assert perf_test(tmp_path, "-s", 1, "-f", tmp_path / "none" / "x").status == 1


def test_storage_test_sweeps_over_sizes(tmp_path: Path) -> None:
    """operations.md §11: table and plot of how long writes of each size take until they are durable."""
    ran = run("amps.cli.main", tmp_path, "storage-test", "-s", 4, "-seconds", 0.02, "-plot", "p.svg")
    assert ran.status == 0, ran.errors
    assert list(figures(ran)) == FIGURES
    sizes = [re.split(r"  +", line.strip())[1] for line in ran.lines if line.strip().startswith("buffered")]
    assert sizes == ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"]
    assert "99.9 %" in ran.out.decode()
    picture = ElementTree.parse(tmp_path / "p.svg").getroot()
    assert picture.tag.endswith("svg")
    assert "href" not in (tmp_path / "p.svg").read_text()
    lines = [element for element in picture.iter() if element.tag.endswith("polyline")]
    assert {len(line.attrib["points"].split()) for line in lines} == {6}
    assert len(lines) in (2, 4)


def test_a_plot_is_overwritten_on_request(tmp_path: Path) -> None:
    arguments = ("storage-test", "-s", 1, "-seconds", 0.01, "-plot", "p.svg")
    assert run("amps.cli.main", tmp_path, *arguments).status == 0
    (tmp_path / "p.svg").write_text("of yesterday")
    ran = run("amps.cli.main", tmp_path, *arguments, "-overwrite")
    assert ran.status == 0, ran.errors
    assert "<svg" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize("plot", ["none/p.svg", "file/p.svg", "p" * 300])
def test_a_plot_that_cannot_be_written_is_noticed_before_anything_is_measured(
    tmp_path: Path, plot: str
) -> None:
    (tmp_path / "file").touch()
    ran = run("amps.cli.main", tmp_path, "storage-test", "-s", 1, "-plot", plot)
    assert ran.status == 2
    assert "cannot be written" in ran.errors
    assert ran.out == b""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert run("amps.cli.main", tmp_path, "storage-test", "-s", 1, "-seconds", "1e300").status == 2


def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with subprocess.Popen(
        command("amps.cli.utilities.bio_perf_test", "-b", 1, "-m", 256, "-s", 512, "-f", path),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": package_path()},
    ) as process:
        descriptors = Path(f"/proc/{process.pid}/fd")

        def writing() -> bool:
            try:
                return any(os.readlink(link).startswith(f"{path}") for link in descriptors.iterdir())
            except OSError:
                return False

        wait_until(writing, 30, "it does not begin")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_device_without_direct_writes_is_reported_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """transaction_log.md §20 item 36: such a device gets fdatasync or its like."""
    from amps.cli.utilities import storage_run

    real_open = os.open

    def refusing(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument", str(path))
        return real_open(path, flags, mode)

    monkeypatch.setattr(storage_test.os, "open", refusing)
    settings = storage_run.Settings(Workload(1, 4096), 1 << 20, tmp_path / "data")
    with TestFile(settings.path, settings.file_bytes) as file:
        assert file.descriptor(direct=True, durable=False) is None
        result = storage_run.run(settings, file, lambda done: None)
    assert result.write_count == 256
    assert f"{tmp_path} refuses O_DIRECT" in capsys.readouterr().err


def test_reads_are_mixed_in_as_asked(tmp_path: Path) -> None:
    with TestFile(tmp_path / "data", 1 << 20) as file:
        descriptor = file.descriptor(direct=False, durable=False)
        assert descriptor is not None
        for percent in (0, 1, 20, 99):
            result = run_workload(Workload(1, 4096, percent), descriptor, 1 << 20)
            assert result.read_mix_percent == pytest.approx(percent, abs=0.5)
            assert len(result.latencies_ns) == result.write_count == 256
