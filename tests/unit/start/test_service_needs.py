"""Needs of a configuration that the installer of the Linux service queries (operations.md §10)."""

from pathlib import Path

import pytest

from amps.config import ServerConfig, load
from amps.server.service_needs import (
    drop_in,
    journal_directories,
    lasting_directories,
    log_files,
    main,
    owned_paths,
    unwritable,
    written_directories,
)

CONFIG = Path("/opt/etc/amps/config.xml")
TRANSPORT = "<Transports><Transport><Name>t</Name>{}</Transport></Transports>"
TARGET = (
    "<Logging><Target><Protocol>file</Protocol><Level>info</Level><FileName>{}</FileName></Target></Logging>"
)
LOG = (
    "<TransactionLog><JournalDirectory>{}</JournalDirectory>{}"
    "<Topic><Name>a</Name><MessageType>json</MessageType></Topic></TransactionLog>"
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the service."""
    directory = tmp_path / "state"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def config(xml: str) -> ServerConfig:
    return load("c.xml", text=f"<AMPSConfig><Name>n</Name>{xml}</AMPSConfig>").config


def test_paths_below_the_working_directory_need_nothing(state: Path) -> None:
    made = config(LOG.format("journal", "") + TARGET.format("logs/%Y/%n.log"))
    assert journal_directories(made) == [state / "journal"]
    assert written_directories(made) == [state / "journal", state / "logs"]
    # The only need is due to /tmp, where these tests run.
    assert drop_in(made, CONFIG).splitlines()[1:] == ["[Service]", "PrivateTmp=false"]


def test_all_written_directories() -> None:
    action = (
        "<Actions><Action><On><Module>amps-action-on-startup</Module></On>"
        "<Do><Module>amps-action-do-remove-files</Module><Options><Age>1d</Age><Pattern>/old/{{WHICH}}/*.x</Pattern>"
        "</Options></Do></Action></Actions>"
    )
    made = config(
        LOG.format("/data/journal", "<JournalArchiveDirectory>/archive/100%</JournalArchiveDirectory>")
        + TARGET.format("/logs here/%Y-%m/%n.log")
        + TRANSPORT.format("<Type>amps-unix</Type><FileName>/sockets/a.sock</FileName>")
        + action
    )
    assert [str(path) for path in written_directories(made)] == [
        "/archive/100%",
        "/data/journal",
        "/logs here",
        "/old",
        "/sockets",
    ]
    paths = '/archive/100%% /data/journal "/logs here" /old /sockets'
    assert drop_in(made, CONFIG).splitlines()[1:] == [
        "[Unit]",
        f"RequiresMountsFor={paths}",
        "[Service]",
        f"ReadWritePaths={paths}",
    ]


def test_the_directory_of_a_socket_below_run_is_made_by_the_service() -> None:
    made = config(TRANSPORT.format("<Type>amps-unix</Type><FileName>/run/desk/a.sock</FileName>"))
    assert lasting_directories(made) == []
    assert drop_in(made, CONFIG).splitlines()[1:] == ["[Service]", "RuntimeDirectory=desk"]
    assert unwritable(made) == []


@pytest.mark.parametrize(
    ("xml", "line"),
    [
        (
            TRANSPORT.format("<Type>tcp</Type><InetAddr>443</InetAddr>"),
            "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        ),
        ("<Admin><InetAddr>80</InetAddr></Admin>", "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"),
        (LOG.format("/home/me/journal", ""), "ProtectHome=false"),
        (TARGET.format("/var/tmp/a.log"), "PrivateTmp=false"),
    ],
)
def test_restrictions_of_the_unit_are_lifted_where_needed(xml: str, line: str) -> None:
    assert line in drop_in(config(xml), CONFIG).splitlines()


def test_a_configuration_in_a_home_directory_can_be_read() -> None:
    assert drop_in(config(""), Path("/home/me/c.xml")).splitlines()[1:] == [
        "[Service]",
        "ProtectHome=read-only",
    ]


def test_unprivileged_ports_need_nothing() -> None:
    for port in (0, 1024, 9007):
        assert drop_in(config(TRANSPORT.format(f"<Type>tcp</Type><InetAddr>{port}</InetAddr>")), CONFIG) == ""


def test_existing_log_files_and_nothing_else(state: Path) -> None:
    made = config(TARGET.format("logs/%Y-%m-%d-%n.log"))
    (state / "logs").mkdir()
    for name in ("2026-01-02-00000.log", "2026-01-02-00000.log.gz", "other.txt"):
        (state / "logs" / name).write_text("")
    assert [path.name for path in log_files(made)] == ["2026-01-02-00000.log", "2026-01-02-00000.log.gz"]


def test_files_of_others_keep_their_owner(tmp_path: Path) -> None:
    """A directory that contains other files keeps its owner, and so do those files."""
    made = config(LOG.format(tmp_path / "shared", "") + TARGET.format(tmp_path / "logs" / "%n.log"))
    for name in (
        "shared/n.0000000000.journal",
        "shared/n.lock",
        "shared/other.0000000000.journal",
        "logs/00000.log",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    owned = [str(path.relative_to(tmp_path)) for path in owned_paths(made)]
    assert owned == ["logs", "logs/00000.log", "shared/n.0000000000.journal", "shared/n.lock"]
    (tmp_path / "shared" / "other.0000000000.journal").unlink()
    assert tmp_path / "shared" in owned_paths(made)


def test_directories_that_cannot_be_made_are_reported(state: Path) -> None:
    (state / "file").write_text("")
    made = config(LOG.format("file/journal", ""))
    assert unwritable(made) == [f"{state / 'file' / 'journal'} cannot be made"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], state: Path) -> None:
    path = tmp_path / "c.xml"
    path.write_text(f"<AMPSConfig><Name>n</Name>{LOG.format('/data/journal', '')}</AMPSConfig>")
    for what, said in (("owned", ""), ("directories", "/data/journal\n")):
        assert main([what, str(path)]) == 0
        assert capsys.readouterr().out == said
    assert main(["drop-in", str(path)]) == 0
    assert "ReadWritePaths=/data/journal\n" in capsys.readouterr().out
    (state / "file").write_text("")
    path.write_text(f"<AMPSConfig><Name>n</Name>{LOG.format('file/journal', '')}</AMPSConfig>")
    assert main(["check", str(path)]) == 1
    assert "cannot be made" in capsys.readouterr().err
    path.write_text("<AMPSConfig/>")
    assert main(["check", str(path)]) == 1
    assert "Name" in capsys.readouterr().err
    assert main(["all", str(path)]) == 1
    assert capsys.readouterr().err.startswith("usage: ")
