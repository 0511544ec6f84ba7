"""One Spark session for all tests of the directory; they are skipped without PySpark or without Java."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.server import package_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local session of two threads in which the format is registered."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")
    from pyspark.sql import SparkSession

    import amps.spark

    try:
        amps.spark.check_java()
    except amps.spark.JavaMissing as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("spark")
    # The JVM starts the workers: they need the same Python, the package under test, and the tests.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = package_path()
    os.environ["PYTHONSAFEPATH"] = "1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("amps-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        # New plans between stages take longer than small tables gain.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    amps.spark.register(session)
    yield session
    session.stop()
