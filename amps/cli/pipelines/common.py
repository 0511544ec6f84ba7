"""The shared parts of the commands of `amps pipeline`: options, Spark session, progress, and texts of failures."""

import errno
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amps.cli.options import option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from amps.spark.pipelines.job import Progress

_Command = TypeVar("_Command", bound=Callable[..., Any])
_NEEDED_PACKAGES = frozenset({"pyspark", "pyarrow"})
_JVM_NOISE = (
    b"WARNING: Using incubator modules: ",
    b"Using Spark's default log4j",
    b"Setting default log level to",
    b"To adjust logging level use",
)
"""Lines that every JVM of Spark prints at its start."""
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d{0,5})(,\s*[1-9]\d{0,5})?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|"
    r"spark://[^\s,/]+:\d{1,5}(,[^\s,/]+:\d{1,5})*|yarn|k8s://\S+",
    re.ASCII,
)
"""The masters that Spark accepts, except local-cluster, which is for its own tests."""
# The driver gets failures as exceptions and reports them: Spark would log the same on several pages.
_LOGGING = """\
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
"""


class Master(click.ParamType[str]):
    """Spark's master. It is checked here: Spark's own error takes pages and comes after its JVM has started."""

    name = "master"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _MASTER.fullmatch(value) is None:
            self.fail(
                f"{value!r} is no master of Spark: those are local[*] and local[4] (threads here), "
                "spark://host:7077, yarn and k8s://https://host:443",
                param,
                ctx,
            )
        return str(value)


MASTER = Master()


def job_options(command: _Command) -> _Command:
    """Add the options of every job: the command gets the arguments `master` and `dry_run`."""
    command = option("dry-run", "dry_run", is_flag=True, help="Show what would be done, and change nothing.")(
        command
    )  # type: ignore[assignment]
    return option(  # type: ignore[return-value]
        "master",
        type=MASTER,
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: local[N] for N threads here, or a cluster: spark://host:7077, yarn, k8s://...",
    )(command)


@contextmanager
def spark_session(master: str, name: str) -> "Iterator[SparkSession]":
    """Yield a session with the format "amps", little log output, and times in UTC; stop it at the end.

    An existing session of this process is used unchanged, and not stopped. Raises ImportError if packages are
    missing, JavaMissing if Java is missing, PipelineError if Spark does not start.
    """
    from amps.spark import check_java, register  # raises ImportError with the missing package

    session = _running()
    if session is not None:
        register(session)
        yield session
        return
    check_java()
    with TemporaryDirectory(prefix="amps-pipeline-") as directory:
        session = _started(master, name, Path(directory))
        try:
            register(session)
            yield session
        finally:
            session.stop()


def _running() -> "SparkSession | None":
    """Return this thread's session, else the process's: a thread that has started none has none in the JVM."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _started(master: str, name: str, directory: Path) -> "SparkSession":
    """Raises PipelineError."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from amps.spark.pipelines.job import PipelineError, told_by_spark

    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")  # about package versions
    # py4j logs calls that Ctrl-C has interrupted, on several pages, through the root logger.
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    log_settings = directory / "log4j2.properties"
    log_settings.write_text(_LOGGING)
    # The JVM starts the workers, which must find the same modules.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    os.environ["PYTHONSAFEPATH"] = "1"  # and no modules of the working directory
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log_settings.as_uri()}")
    )
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
    try:
        with _relayed_errors():
            session: SparkSession = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise PipelineError(f"Spark does not start on {master!r}: {told_by_spark(error)}") from error
    except Exception as error:  # exceptions of py4j have no narrower base
        if not type(error).__module__.startswith("py4j"):
            raise
        raise PipelineError(f"Spark does not start on {master!r}: {told_by_spark(error)}") from error
    return session


@contextmanager
def _relayed_errors() -> Iterator[None]:
    """Relay the standard error of a JVM started in the block to ours, line by line, without its usual messages.

    So its lines, including those of Python workers, are shown above a progress bar and not in the middle of it.
    """
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    ours = os.dup(2)
    threading.Thread(target=_relay, args=(read_end,), name="spark-stderr", daemon=True).start()
    os.dup2(write_end, 2)
    os.close(write_end)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _relay(read_end: int) -> None:
    with os.fdopen(read_end, "rb") as lines:
        for line in lines:
            if not line.startswith(_JVM_NOISE):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()


@contextmanager
def shown_progress() -> "Iterator[Progress]":
    """Show progress on standard error: a bar on a terminal, plain lines elsewhere."""
    from amps.cli.pipelines.display import Bar, Lines

    if not sys.stderr.isatty():
        yield Lines()
        return
    with Bar() as bar:
        yield bar


def counted(count: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def failure_text(error: Exception) -> str | None:
    """Return the message for a failure, in one line; None if it is an internal error."""
    if isinstance(error, ImportError):
        return str(error) if error.name in _NEEDED_PACKAGES else None
    if isinstance(error, click.ClickException) or sys.modules.get("pyspark") is None:
        return None
    from pyspark.errors import PySparkException

    from amps.spark import JavaMissing
    from amps.spark.pipelines.job import PipelineError, told_by_spark

    if isinstance(error, (PipelineError, JavaMissing)):
        return str(error)
    if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
        told = told_by_spark(error)
        if (full := os.strerror(errno.ENOSPC)) not in str(error):
            return told
        own = os.environ.get("SPARK_LOCAL_DIRS", gettempdir())
        return f"{told} ({full}): Spark's own files are in {own}; make room, or set SPARK_LOCAL_DIRS"
    return None
