"""Servers with shorter times than a user's, so that tests need not wait."""

import os
from pathlib import Path

from tests.support.server import package_path


def patched(directory: Path, code: str) -> dict[str, str]:
    """The environment of a server whose processes run this code before anything else."""
    site = directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{site}{os.pathsep}{package_path()}"}
