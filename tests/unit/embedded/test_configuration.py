"""The forms in which a program gives a configuration (queue_guarantees.md §5, 2)."""

from pathlib import Path
from xml.etree import ElementTree

import lxml.etree
import pytest

from amps.embedded import Server
from amps.embedded.configuration import as_text

TEXT = "<AMPSConfig><Name>a &amp; b</Name></AMPSConfig>"


def test_a_text_a_path_and_elements_are_the_same_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.xml"
    path.write_text(TEXT)
    for given in (TEXT, path, str(path), ElementTree.fromstring(TEXT), lxml.etree.fromstring(TEXT)):
        assert as_text(given) == TEXT
    assert as_text("\n " + TEXT) == "\n " + TEXT


def test_other_objects_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not int"):
        Server(configuration=3)
    with pytest.raises(FileNotFoundError):
        Server(configuration=tmp_path / "missing.xml")
    with pytest.raises(ValueError, match="'slow'"):
        Server(clock="slow")  # type: ignore[arg-type]
