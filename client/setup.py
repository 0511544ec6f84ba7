"""Builds the client library from the sources of the whole project, which lie beside this directory.

It takes the packages of the client, and from the packages that the server has, too, only the modules that the client
imports. It takes no extension module: the client then uses its equivalents in Python.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).parent / ".."
WHOLE = ["amps.client", "amps.client.*", "amps.compat", "amps.compat.*"]
PARTS = {
    "amps": {"__init__", "aio", "same_host", "version"},
    "amps.journal": {"__init__", "bookmark_text", "written_points"},
}


class BuildChosenModules(build_py):
    """Leaves out the modules of the server."""

    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        chosen = PARTS.get(package)
        return [found for found in modules if chosen is None or found[1] in chosen]


def version() -> str:
    text = (SOURCES / "amps/version.py").read_text()
    found = re.search(r'^VERSION = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


setup(
    version=version(),
    packages=[*PARTS, *find_packages("..", include=WHOLE)],
    package_dir={"": ".."},
    package_data={"amps": ["py.typed"], "amps.client": ["py.typed"]},
    include_package_data=False,
    cmdclass={"build_py": BuildChosenModules},
)
