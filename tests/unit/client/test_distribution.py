"""The client library as a distribution of its own: a wheel without compiled code, installed alone, on a real server."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from amps.version import VERSION
from tests.support.server import StartServer, Transport

ROOT = Path(__file__).parents[3]
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
WITHOUT_EXTRAS = """
import sys
from amps.client import Client, to_arrow, to_pandas
from amps.client.payloads import codecs, json_text

assert json_text.orjson is None
for call in (lambda: to_pandas([]), lambda: to_arrow([]), lambda: codecs.codec_for("msgpack").encode({})):
    try:
        call()
    except ImportError as error:
        print(error)
with Client("plain", sys.argv[1]) as client:
    stream = client.subscribe("plain")
    client.publish("plain", {"text": "\\u00fc", "ratio": float("nan")})
    print(stream.get(20).json())
"""
WITH_EXTRAS = """
import sys
import pydantic
from amps.client import Client
from amps.client.payloads import json_text


class Order(pydantic.BaseModel):
    id: int
    side: str


assert json_text.orjson is not None
with Client("with-json", sys.argv[1]) as client:
    stream = client.subscribe("models")
    for number in (1, 2):
        client.publish("models", Order(id=number, side="buy"))
    client.flush()
    print(repr(stream.get(20).decode(Order)), repr(stream.get(20).decode(Order)))
    for number in (1, 2):
        client.publish("models", Order(id=number, side="buy"))
    client.flush()
    print(stream.to_pandas(max_messages=1)["id"].tolist(), stream.to_arrow(max_messages=1).to_pylist())
with Client("with-msgpack", sys.argv[2]) as client:
    stream = client.subscribe("models")
    client.publish("models", {"bytes": b"\\x00"})
    print(stream.get(20).decode())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the recipe of `make client-wheel` from a copy of the sources that has no compiled code."""
    sources = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "client", sources / "client", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    shutil.copytree(ROOT / "amps", sources / "amps", ignore=shutil.ignore_patterns("_core", "__pycache__"))
    recipe = re.search(r"^client-wheel:.*\n\t(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    command = recipe[1].replace("$(BIN)/pip", f"{sys.executable} -m pip")
    built = subprocess.run(["sh", "-ec", command], cwd=sources, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = (sources / "dist").iterdir()
    return wheel


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


def test_the_installed_client_names_the_package_that_it_lacks(interpreter: Path, start_server: StartServer) -> None:
    server = start_server()
    assert run(interpreter, "-c", WITHOUT_EXTRAS, f"tcp://127.0.0.1:{server.port()}/amps/json").splitlines() == [
        "to_pandas() needs the package pandas: pip install pandas",
        "to_arrow() needs the package pyarrow: pip install pyarrow",
        "bodies of the type msgpack need the package msgpack: pip install msgpack",
        "{'text': 'ü', 'ratio': None}",
    ]


def test_the_installed_client_uses_its_extras(
    interpreter: Path, start_server: StartServer, tmp_path: Path
) -> None:
    """The packages of the environment of the tests stand for those that pip would install."""
    site = next(interpreter.parents[1].glob("lib/python*/site-packages"))
    paths = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (site / "extras.pth").write_text("\n".join(sorted(paths)))
    try:
        server = start_server(transports=(Transport(), Transport(name="msgpack", message_type="msgpack")))
        uris = [f"tcp://127.0.0.1:{server.port(name)}/amps/{name}" for name in ("json", "msgpack")]
        assert run(interpreter, "-c", "import amps; print(amps.__path__)").startswith(f"['{site}")
        assert run(interpreter, "-c", WITH_EXTRAS, *uris).splitlines() == [
            "Order(id=1, side='buy') Order(id=2, side='buy')",
            "[1] [{'id': 2, 'side': 'buy'}]",
            "{'bytes': b'\\x00'}",
        ]
    finally:
        (site / "extras.pth").unlink()
