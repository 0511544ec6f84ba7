"""`amps_bio_perf_test`: measure the speed of a device for the writes of a transaction log."""

from pathlib import Path

import click

from amps.cli.utilities.common import SETTINGS, UtilityCommand, bytes_progress, version_option
from amps.cli.utilities.storage_run import report, run, settings_of, workload_options
from amps.journal.storage_test import TestFile


@click.command(
    cls=UtilityCommand,
    context_settings=SETTINGS,
    example="amps_bio_perf_test -b 32 -m 1K -s 1024 -f /data/test",
)
@workload_options
@version_option
def main(batch_size: int, message_size: int, file_size_mb: int, read_mix: int, path: Path) -> None:
    """Write batches of messages sequentially to a preallocated file, without the page cache (O_DIRECT), each
    durable before the next (O_DSYNC).

    Appends to amps_bio_perf_latency.csv and amps_bio_perf_throughput.csv in the working directory.
    """
    settings = settings_of(batch_size, message_size, file_size_mb, read_mix, path)
    with (
        bytes_progress() as begin,
        TestFile(path, settings.file_bytes, begin("preallocating", settings.file_bytes)) as file,
    ):
        result = run(settings, file, begin("writing", settings.file_bytes))
    report(settings, result)


if __name__ == "__main__":
    main()
