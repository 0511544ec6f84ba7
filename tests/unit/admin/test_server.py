"""The administration interface over HTTP: resources, operations, statuses, headers, permissions, closed connections."""

import contextlib
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from amps._core.journal.group_commit import note_write
from amps._core.values.value import publisher_id
from tests.support.admin import AdminFixture, get, journal
from tests.support.certificates import Authority
from tests.support.services import action, do, echo, on

StartAdmin = Callable[..., AdminFixture]


JOURNALS = [
    journal(0, archived=True, compressed=True, path="/archive/n.0000000000.journal.gz"),
    journal(1),
    journal(2, full=False, max_timestamp_ns=0),
]
LIBRARY = "libamps_simple_access_entitlement.so"
SIMPLE = f"<Modules><Module><Name>simple</Name><Library>{LIBRARY}</Library></Module></Modules>"


def simple(**options: str) -> str:
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in options.items())
    return f"<Entitlement><Module>simple</Module><Options>{inner}</Options></Entitlement>"


USER_NEEDED = (
    "<Authentication><Module>amps-default-authentication-module</Module>"
    "<Options><RequireUsername>true</RequireUsername></Options></Authentication>"
)


# --- resources --------------------------------------------------------------------------------------------


def test_transaction_log_65_journals(start_admin: StartAdmin) -> None:
    """transaction_log.md §22 65, §14: file names, whether archived and compressed, times."""
    admin = start_admin(journals=JOURNALS)
    log = admin.get("/amps/instance/transaction_log.json").json()["amps"]["instance"]["transaction_log"]
    assert log["min_timestamp"] == "20231114T221320.000000Z"
    assert log["max_timestamp"] == "20231114T221322.000000Z"
    assert log["journals"][0] == {
        "id": "n.0000000000.journal.gz",
        "file_name": "/archive/n.0000000000.journal.gz",
        "is_archived": "true",
        "is_compressed": "true",
        "max_timestamp": "20231114T221321.000000Z",
        "min_timestamp": "20231114T221320.000000Z",
    }
    assert [one["is_archived"] for one in log["journals"]] == ["true", "false", "false"]
    assert log["journals"][2]["max_timestamp"] == ""


def test_operations_5_7_free_space_for_journals(
    start_admin: StartAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """operations.md §5.7, §12.3: the free space of the journals' file system; empty if the directory is missing."""
    monkeypatch.chdir(tmp_path)
    leaf = "/amps/instance/transaction_log/file_system_free_percent"
    admin = start_admin(journals=JOURNALS)
    assert admin.get(leaf).body == ""
    settings = admin.loaded.config.transaction_log
    assert settings is not None
    settings.journal_directory.mkdir()
    assert 0 <= float(admin.get(leaf).body) <= 100
    assert int(admin.get("/amps/instance/transaction_log/file_system_free_bytes").body) >= 0


def test_transaction_log_65_writes(start_admin: StartAdmin) -> None:
    """operations.md §5.7: latency of writes in microseconds, and their sizes in bytes."""
    admin = start_admin(journals=JOURNALS)
    path = "/amps/instance/transaction_log"
    assert admin.get(f"{path}/write_latency.json").json()["amps"]["instance"]["transaction_log"] == {
        "write_latency": {"histogram": "", "maximum": "0", "minimum": "0"}
    }
    note_write(admin.writes.words, 300, 5000)
    note_write(admin.writes.words, 200, 70000)
    assert admin.get(f"{path}/write_latency/minimum").body == "200"
    assert admin.get(f"{path}/write_latency/maximum").body == "300"
    assert admin.get(f"{path}/write_size/maximum").body == "70000"
    assert [line.split()[:4] for line in admin.get(f"{path}/write_latency/histogram").body.splitlines()] == [
        ["128", "..", "255", "1"],
        ["256", "..", "511", "1"],
    ]


def test_operations_5_1_one_journal(start_admin: StartAdmin) -> None:
    """operations.md §5.1, §5.2: a suffix that is part of a journal's name is not taken as a format."""
    admin = start_admin(journals=JOURNALS)
    path = "/amps/instance/transaction_log/journals/n.0000000001.journal"
    assert "is_archived" in admin.get(path).body
    (only,) = admin.get(f"{path}.json").json()["amps"]["instance"]["transaction_log"]["journals"]
    assert only["id"] == "n.0000000001.journal"
    assert admin.get(f"{path}/is_archived").body == "false"
    assert (
        "<journal id='n.0000000001.journal'><is_archived>false</is_archived>"
        in admin.get(f"{path}/is_archived.xml").body
    )


def test_operations_5_1_a_compressed_journal_is_found_by_its_first_name(start_admin: StartAdmin) -> None:
    """operations.md §5.1: the id is the name of the file. An id from before the compression stays valid."""
    admin = start_admin(journals=JOURNALS)
    path = "/amps/instance/transaction_log/journals"
    (one,) = admin.get(f"{path}/n.0000000000.journal.gz.json").json()["amps"]["instance"]["transaction_log"][
        "journals"
    ]
    for name in ("n.0000000000.journal", "n.0000000000.journal.gz"):
        answered = admin.get(f"{path}/{name}.json").json()["amps"]["instance"]["transaction_log"]["journals"]
        assert answered == [one]
        assert admin.get(f"{path}/{name}/is_compressed").body == "true"
        assert admin.get(f"{path}/{name}/is_compressed.xml").status == 200
        done = admin.get(f"/amps/administrator/transaction_log/journals/{name}/archive.json")
        assert (done.status, admin.core.asked[-1]) == (200, ("archive", [{"up_to": 0}]))
    listed = admin.get(f"{path}.json").json()["amps"]["instance"]["transaction_log"]["journals"]
    assert [row["id"] for row in listed].count(one["id"]) == 1
    assert len(listed) == len(JOURNALS)
    # A journal that was never compressed has no compressed name.
    assert admin.get(f"{path}/n.0000000001.journal.gz").status == 404


@pytest.mark.parametrize("denied", [r"journal/remove$", r"journal\.gz/remove$"])
def test_operations_41_another_name_of_a_journal_is_denied_as_well(
    start_admin: StartAdmin, denied: str
) -> None:
    """operations.md §13 41: an operation denied under one name of a journal is denied under the other one."""
    admin = start_admin(admin_xml=simple(DeniedTopics=denied), instance_xml=SIMPLE, journals=JOURNALS)
    path = "/amps/administrator/transaction_log/journals"
    assert admin.get(f"{path}/n.0000000000.journal/remove").status == 403
    assert "remove" not in [verb for verb, _ in admin.core.asked]


def test_operations_5_7_the_instance(start_admin: StartAdmin) -> None:
    """operations.md §5.7: figures of the instance."""
    admin = start_admin(instance_xml="<Description>what it is for</Description>")
    instance = admin.get("/amps/instance.json").json()["amps"]["instance"]
    assert instance["name"] == "n"
    assert instance["name_hash"] == str(publisher_id("n"))
    assert instance["description"] == "what it is for"
    assert all(
        isinstance(value, str)
        for name, value in instance.items()
        if name not in ("subscriptions", "transaction_log")
    )
    answer = admin.get("/amps/instance/config.xml")
    assert answer.headers["Content-Type"].startswith("application/xml")
    assert answer.body == admin.loaded.expanded_text


def test_operations_31_csv_of_leaves_only(start_admin: StartAdmin) -> None:
    """operations.md §13 31, §5.3: only single values are available as CSV."""
    admin = start_admin()
    answer = admin.get("/amps/instance/name.csv")
    assert answer.status == 200
    time_text, _, value = answer.body.rstrip("\n").partition(",")
    assert (len(time_text), value) == (23, "n")
    assert admin.get("/amps/instance.csv").status == 400
    assert admin.get("/amps/instance/name?t0=20260203T0").status == 400


def test_an_instance_without_a_log_has_no_journals(start_admin: StartAdmin) -> None:
    admin = start_admin(log=False)
    assert admin.get("/amps/instance/transaction_log.json").status == 404
    assert admin.get("/amps.json").status == 200


def test_pages_and_the_root(start_admin: StartAdmin) -> None:
    admin = start_admin(journals=JOURNALS)
    answer = admin.get("/")
    assert (answer.status, answer.headers["Location"]) == (302, "/amps")
    page = admin.get("/amps")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert 'href="/amps/instance"' in page.body
    assert admin.get("/amps/").status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/amps/none", 404),
        ("/other", 404),
        ("/amps/./instance", 404),
        ("/amps//instance", 404),
        ("/amps/%2e%2e/amps", 404),
        ("/amps/instance/%ff", 400),
        ("/amps/.json", 404),
        ("/" + "a/" * 100, 404),
        ("/amps?" + "&".join(f"a{number}=1" for number in range(300)), 400),
        ("/amps?" + "a" * 9000, 400),
    ],
)
def test_operations_5_4_unknown_resources(start_admin: StartAdmin, path: str, status: int) -> None:
    """operations.md §5.4: statuses of unknown paths."""
    assert start_admin().get(path).status == status


def test_operations_5_1_every_request_is_a_get(start_admin: StartAdmin) -> None:
    """operations.md §5.1: other methods are refused, and their bodies are not read."""
    admin = start_admin()
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        answer = admin.get("/amps", method=method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    with socket.create_connection(("127.0.0.1", admin.port)) as connection:
        connection.sendall(
            b"POST /amps HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 1000
        )
        connection.settimeout(20)
        assert connection.recv(100).startswith(b"HTTP/1.1 405")


# --- operations -------------------------------------------------------------------------------------------


def test_transaction_log_60_only_full_journals_are_listed(start_admin: StartAdmin) -> None:
    """transaction_log.md §22 60, §13.4: the operation applies to that journal and all older ones."""
    admin = start_admin(journals=JOURNALS)
    path = "/amps/administrator/transaction_log/journals"
    listed = admin.get(f"{path}.json").json()["amps"]["administrator"]["transaction_log"]["journals"]
    assert listed == [{"id": "n.0000000000.journal.gz"}, {"id": "n.0000000001.journal"}]
    for verb in ("compress", "archive", "remove"):
        answer = admin.get(f"{path}/n.0000000001.journal/{verb}.json")
        assert (answer.status, answer.json()) == (200, {"status": "success"})
        assert admin.core.asked[-1] == (verb, [{"up_to": 1}])
    asked = len(admin.core.asked)
    assert admin.get(f"{path}/n.0000000002.journal/remove").status == 404
    assert [verb for verb, _ in admin.core.asked[asked:]] == ["list"]
    assert admin.get(f"{path}/n.0000000001.journal/remove").body == "success\n"
    assert len(admin.log.texts("19-0003")) == 4


def test_a_core_that_refuses_is_a_failure(start_admin: StartAdmin) -> None:
    admin = start_admin(journals=JOURNALS)

    def answer(verb: str, rest: list[object]) -> list[list[object]]:
        return [["ok", JOURNALS]] if verb == "list" else [["error", "there is no JournalArchiveDirectory"]]

    admin.core._answer = answer  # type: ignore[assignment]
    refused = admin.get("/amps/administrator/transaction_log/journals/n.0000000001.journal/archive")
    assert (refused.status, refused.body) == (500, "there is no JournalArchiveDirectory\n")


def test_operations_68_actions_by_path(start_admin: StartAdmin) -> None:
    """operations.md §13 68: without its parameter no action runs; names and values are taken as sent."""
    actions = action(
        on("admin", Path="arch", RequiredParameter="AGE", Name="Archive"), echo("[{{AGE}}|{{age}}|{{X}}]")
    )
    admin = start_admin(actions_xml=actions)
    path = "/amps/administrator/actions/arch"
    refused = admin.get(path)
    assert (refused.status, refused.body) == (400, "the parameter AGE is missing\n")
    assert admin.get(f"{path}?age=1d").status == 400
    assert not admin.log.texts("29-0001")
    assert admin.get(f"{path}?AGE=1d&X=a%26b+c%0a").body == "success\n"
    assert admin.get(f"{path}.json?AGE=2d&AGE=3d&age=x").json() == {"status": "success"}
    assert admin.log.texts("29-0001") == ["[1d||a&b c\n]", "[3d|x|]"]
    assert "Archive" in admin.get("/amps/administrator/actions").body


def test_operations_68_an_action_that_fails(start_admin: StartAdmin) -> None:
    """operations.md §13 68, §5.4: 500, and an error in the log."""
    actions = action(on("admin", Path="arch"), do("remove-journal", Age="{{AGE}}"))
    admin = start_admin(actions_xml=actions)
    answer = admin.get("/amps/administrator/actions/arch?AGE=LastThursday")
    assert answer.status == 500
    assert "LastThursday" in answer.body
    assert len(admin.log.texts("29-0002")) == 1
    assert not admin.core.asked


# --- permissions ------------------------------------------------------------------------------------------


def test_operations_41_denied_topics(start_admin: StartAdmin) -> None:
    """operations.md §13 41: statistics are shown, actions are refused and do not run.

    The check reports this without running one.
    """
    actions = action(on("admin", Path="p"), echo("x"))
    xml = simple(DeniedTopics="^/amps/administrator/actions")
    admin = start_admin(actions_xml=actions, admin_xml=xml, instance_xml=SIMPLE, journals=JOURNALS)
    assert admin.get("/amps/instance.json").status == 200
    assert admin.get("/amps/administrator/actions/p").status == 403
    assert admin.get("/amps/administrator/actions/p.json").status == 403
    check = "/amps/administrator/authorization/entitlement/{}/amps-admin/check"
    for spelling in ("transport", "transports"):
        path = check.format(spelling)
        assert admin.get(f"{path}?path=/amps/administrator/actions/p").body == "false"
        assert admin.get(f"{path}?path=/amps/instance").body == "true"
    answered = admin.get(f"{check.format('transports')}.json?path=/amps/administrator/actions/p").json()
    assert answered["amps"]["administrator"]["authorization"]["entitlement"]["transports"] == {
        "amps-admin": {"check": "false"}
    }
    assert admin.get(check.format("transports")).status == 400
    assert not admin.log.texts("29-0001")
    refused = admin.log.texts("19-0002")
    assert any("/amps/administrator/actions/p" in text and "403" in text for text in refused)


@pytest.mark.parametrize(("permission", "status"), [("read", 200), ("write", 403)])
def test_operations_41_granted_permissions(start_admin: StartAdmin, permission: str, status: int) -> None:
    """operations.md §13 41: `read` allows statistics and actions, `write` neither."""
    actions = action(on("admin", Path="p"), echo("x"))
    xml = simple(AllowedTopics=".*", GrantedPermissions=permission)
    admin = start_admin(actions_xml=actions, admin_xml=xml, instance_xml=SIMPLE)
    assert admin.get("/amps/instance/name").status == status
    assert admin.get("/amps/administrator/actions/p").status == status
    assert len(admin.log.texts("29-0001")) == (status == 200)


def test_a_denied_resource_is_left_out_of_its_parents(start_admin: StartAdmin) -> None:
    """A denied resource is neither shown with a suffix nor as part of its parent. The core is not asked for it."""
    xml = simple(DeniedTopics="^/amps/instance/(transaction_log|config)")
    admin = start_admin(admin_xml=xml, instance_xml=SIMPLE, journals=JOURNALS)
    for path in ("/amps.json", "/amps/instance.json", "/amps/instance.xml"):
        body = admin.get(path).body
        assert "name_hash" in body
        assert "n.0000000001.journal" not in body.partition("administrator")[0]
        assert "AMPSConfig" not in body
    asked = len(admin.core.asked)
    for path in (
        "transaction_log.json",
        "transaction_log",
        "transaction_log/journals",
        "config.xml",
        "config.xml.json",
    ):
        assert admin.get(f"/amps/instance/{path}").status == 403
    assert admin.get("/amps/instance/%74ransaction_log.json").status == 403
    assert len(admin.core.asked) == asked


def test_a_denied_resource_is_denied_in_every_format(start_admin: StartAdmin) -> None:
    """Permissions apply to the name of the resource, whatever the format."""
    admin = start_admin(admin_xml=simple(DeniedTopics="^/amps/instance/name$"), instance_xml=SIMPLE)
    for suffix in ("", ".json", ".xml", ".csv"):
        assert admin.get(f"/amps/instance/name{suffix}").status == 403
    assert admin.get("/amps/instance/name_hash.csv").status == 200


def test_operations_42_credentials(start_admin: StartAdmin) -> None:
    """operations.md §13 42, §5.4: 401 with a challenge; Basic credentials are checked by the module."""
    admin = start_admin(admin_xml=USER_NEEDED)
    answer = admin.get("/amps/instance/name")
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="n"')
    assert admin.get("/amps/instance/name", credentials=("me", "secret")).body == "n"
    assert admin.get("/amps/instance/name", credentials=("", "secret")).status == 401
    for header in ("Basic !!!", "Basic bm9jb2xvbg==", "Negotiate abc", "Basic"):
        assert admin.get("/amps/instance/name", headers={"Authorization": header}).status == 401
    assert "secret" not in json.dumps(admin.log.records)


def test_operations_4_the_challenge_is_configured(start_admin: StartAdmin) -> None:
    """operations.md §4: the configured challenge is sent."""
    admin = start_admin(admin_xml=USER_NEEDED + '<WWWAuthenticate>Basic realm="desk 7"</WWWAuthenticate>')
    assert admin.get("/amps").headers["WWW-Authenticate"] == 'Basic realm="desk 7"'


def test_operations_4_the_instance_s_modules_apply(start_admin: StartAdmin) -> None:
    """operations.md §4: without modules of its own, the interface uses those of the instance."""
    admin = start_admin(instance_xml=USER_NEEDED)
    assert admin.get("/amps").status == 401


def test_operations_42_anonymous_paths(start_admin: StartAdmin) -> None:
    """operations.md §13 42, §4: matching paths need neither credentials nor a permission; all other paths need both."""
    xml = USER_NEEDED + "<AnonymousPaths>^/amps$|^/amps/instance/name</AnonymousPaths>"
    admin = start_admin(admin_xml=xml, journals=JOURNALS)
    assert admin.get("/amps").status == 200
    assert admin.get("/amps/instance/name").body == "n"
    assert admin.get("/amps/instance/name.json").json() == {"amps": {"instance": {"name": "n"}}}
    for path in ("/amps.json", "/amps.xml", "/amps/instance", "/amps/instance/pid"):
        assert admin.get(path).status == 401


def test_an_anonymous_parent_shows_anonymous_parts_only(start_admin: StartAdmin) -> None:
    admin = start_admin(
        admin_xml=USER_NEEDED + "<AnonymousPaths>^/amps(/instance)?(.json)?$|/name$</AnonymousPaths>",
        journals=JOURNALS,
    )
    assert admin.get("/amps.json").json() == {"amps": {"instance": {"name": "n"}}}


# --- headers, TLS -----------------------------------------------------------------------------------------


def test_operations_43_headers(start_admin: StartAdmin) -> None:
    """operations.md §13 43: configured headers are on every answer.

    Without AccessControlAllowOrigin, pages of other origins may not read, which is narrower than documented.
    """
    admin = start_admin(admin_xml="<Header>X-One: 1</Header><Header>X-Two:2</Header>")
    for path in ("/", "/amps", "/amps/none", "/amps.json"):
        for headers in ({}, {"Origin": "https://a"}):
            answer = admin.get(path, headers=headers)
            assert (answer.headers["X-One"], answer.headers["X-Two"]) == ("1", "2")
            assert answer.headers["Access-Control-Allow-Origin"] is None


def test_operations_43_all_origins(start_admin: StartAdmin) -> None:
    """operations.md §13 43: the documented default, all origins, must be configured."""
    admin = start_admin(admin_xml="<AccessControlAllowOrigin>.*</AccessControlAllowOrigin>")
    answer = admin.get("/amps/instance/name", headers={"Origin": "https://a"})
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "https://a")


def test_operations_43_a_configured_header_replaces_the_usual_one(start_admin: StartAdmin) -> None:
    """operations.md §13 43: each header is sent once."""
    admin = start_admin(admin_xml="<Header>X-Frame-Options: SAMEORIGIN</Header>")
    assert admin.get("/amps").headers.get_all("X-Frame-Options") == ["SAMEORIGIN"]


def test_operations_43_origins(start_admin: StartAdmin) -> None:
    """operations.md §13 43: a matching origin is echoed, any other origin is not."""
    xml = "<AccessControlAllowOrigin>^https://good</AccessControlAllowOrigin>"
    admin = start_admin(admin_xml=xml)
    answered = [
        admin.get("/amps", headers=headers).headers["Access-Control-Allow-Origin"]
        for headers in ({"Origin": "https://good.example"}, {"Origin": "https://bad"}, {})
    ]
    own = f"http://{socket.gethostname()}:{admin.port}"
    assert answered == ["https://good.example", own, own]


def test_operations_4_https(start_admin: StartAdmin, authority: Authority) -> None:
    """operations.md §4: with certificate and key the interface serves HTTPS only."""
    issued = authority.issue("localhost")
    xml = f"<Certificate>{issued.certificate}</Certificate><PrivateKey>{issued.private_key}</PrivateKey>"
    admin = start_admin(admin_xml=xml)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    assert get(admin.port, "/amps/instance/name", host="localhost", tls=context).body == "n"
    with socket.create_connection(("127.0.0.1", admin.port)) as connection:
        connection.settimeout(20)
        connection.sendall(b"GET /amps HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert not connection.recv(100).startswith(b"HTTP/1.1")
