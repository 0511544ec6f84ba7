"""The client library as a distribution of its own: a wheel without compiled code, installed alone, on a real server."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from amps.version import VERSION
from tests.support.server import StartServer

ROOT = Path(__file__).parents[3]
BUILD = "import sys, setuptools.build_meta; print(setuptools.build_meta.build_wheel(sys.argv[1]))"
BLOCKING = """
import queue, sys
from amps.client import EPOCH, Client, MemoryPublishStore
from amps.client.protocol.traffic import COMPILED

assert not COMPILED
got = queue.SimpleQueue()
store = MemoryPublishStore()
with Client("alone", sys.argv[1], publish_store=store) as client:
    client.subscribe("orders", handler=lambda message: got.put((message.topic, message.json())))
    for number in range(3):
        client.publish("orders", {"id": number})
    client.publish_flush()
    print([got.get(timeout=20) for _ in range(3)], client.unpersisted_count)
    print([message.data for message in client.bookmark_subscribe("orders", EPOCH, top_n=3)])
"""
ASYNCIO = """
import asyncio, sys
from amps.aio import AsyncClient


async def main():
    client = AsyncClient("alone-too", sys.argv[1])
    await client.open()
    async with client.subscribe("trades") as stream:
        await client.publish("trades", b"first")
        print((await stream.get(20)).data)
    await client.close()


asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources that has no compiled code."""
    sources = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "client", sources / "client", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    shutil.copytree(ROOT / "amps", sources / "amps", ignore=shutil.ignore_patterns("_core", "__pycache__"))
    (sources / "dist").mkdir()
    command = [sys.executable, "-c", BUILD, str(sources / "dist")]
    built = subprocess.run(command, cwd=sources / "client", capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return sources / "dist" / built.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def interpreter(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with nothing but the wheel."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", str(wheel))
    return python


def run(python: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), *arguments]
    done = subprocess.run(command, cwd=python.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_the_client_and_no_more(wheel: Path) -> None:
    assert wheel.name == f"amps_server_client-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as contents:
        names = contents.namelist()
        metadata = contents.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    packages = {name.rpartition("/")[0] for name in names if not name.startswith("amps_server_client")}
    assert {name for name in packages if name.count("/") < 2} == {"amps", "amps/client", "amps/compat", "amps/journal"}
    assert {"amps/py.typed", "amps/client/py.typed", "amps/aio.py", "amps/client/aio/client.py"} <= set(names)
    assert all(name.endswith((".py", "py.typed")) for name in names if name.startswith("amps/"))
    sources = {f"amps/{path.relative_to(ROOT / 'amps')}" for path in (ROOT / "amps/client").rglob("*.py")}
    assert sources <= set(names)
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert all("; extra ==" in line for line in required), required
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_installed_client_publishes_and_subscribes(interpreter: Path, start_server: StartServer) -> None:
    server = start_server(log_topics=["orders"])
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    first, second = run(interpreter, "-c", BLOCKING, uri).splitlines()
    assert first == "[('orders', {'id': 0}), ('orders', {'id': 1}), ('orders', {'id': 2})] 0"
    assert second == """[b'{"id":0}', b'{"id":1}', b'{"id":2}']"""
    assert run(interpreter, "-c", ASYNCIO, uri) == "b'first'\n"


def test_the_installed_client_has_the_documented_names(interpreter: Path) -> None:
    listed = run(interpreter, "-c", "import amps.compat as AMPS; print(AMPS.Client.__name__, AMPS.HAClient.__name__)")
    assert listed == "Client HAClient\n"
