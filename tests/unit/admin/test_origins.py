"""Origins of requests: accepted hosts and pages, and the operations open to browsers (operations.md §4, §5)."""

import html
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

import pytest

from amps.server.admin import confirmations, server
from tests.support.admin import AdminFixture, Answer, get, journal
from tests.support.certificates import Authority
from tests.support.services import action, echo, on

StartAdmin = Callable[..., AdminFixture]

CHROME = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
)
ACTIONS = action(on("admin", Path="p"), echo("done [{{A}}]"))
NEEDY = action(on("admin", Path="needy", RequiredParameter=("AGE", "B")), echo("[{{AGE}}|{{B}}|{{C}}]"))
JOURNALS = [journal(1), journal(2)]
JOURNAL_PAGE = "/amps/administrator/transaction_log/journals/n.0000000001.journal"
ACTION_PAGE = "/amps/administrator/actions"
OPERATION = f"{ACTION_PAGE}/p"


def raw(port: int, *lines: str | bytes) -> tuple[int, bytes]:
    """Send a request of exactly these lines. Returns the status and all bytes received."""
    sent = b"\r\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(20)
        connection.sendall(sent)
        received = b""
        while data := connection.recv(65536):
            received += data
    return int(received.split()[1]), received


def forms(page: str) -> list[dict[str, str]]:
    """The fields and the `action` of each form of a page, as a browser sends them with every box ticked."""
    found = []
    for attributes, inner in re.findall(r"<form([^>]*)>(.*?)</form>", page, re.DOTALL):
        assert 'method="post"' in attributes
        (target,) = re.findall(r'action="([^"]*)"', attributes)
        fields = {"action": html.unescape(target)}
        for given in re.findall(r"<input([^>]*)>", inner):
            named = re.search(r'name="([^"]*)"', given)
            value = re.search(r'value="([^"]*)"', given)
            if named is not None:
                fields[html.unescape(named[1])] = html.unescape(value[1]) if value is not None else ""
        found.append(fields)
    return found


def send(
    admin: AdminFixture, form: dict[str, str], headers: dict[str, str] | None = None, **options: object
) -> Answer:
    """Send a form as a browser does, from the interface's own page."""
    fields = dict(form)
    target = fields.pop("action")
    sent = {
        "User-Agent": CHROME,
        "Origin": f"http://127.0.0.1:{admin.port}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    sent |= headers or {}
    return admin.get(
        target,
        method="POST",
        body=urlencode(fields).encode(),
        headers={name: value for name, value in sent.items() if value},
        **options,
    )


def form_of(admin: AdminFixture, page: str, operation: str) -> dict[str, str]:
    """The form of an operation, from a page requested as a browser does."""
    shown = admin.get(page, headers={"User-Agent": CHROME})
    assert shown.status == 200
    (found,) = [form for form in forms(shown.body) if form[confirmations.OPERATION_FIELD] == operation]
    return found


def done(admin: AdminFixture) -> list[str]:
    """All operations that were carried out: actions, and orders to the core."""
    return admin.log.texts("29-0001") + [verb for verb, _ in admin.core.asked if verb != "list"]


# --- hosts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost",
        "localhost.",
        "localhost:1",
        "127.0.0.1",
        "10.1.2.3:8085",
        "[::1]",
        "[::1]:8085",
        "[FE80:0:0::1]:8085",
        socket.gethostname(),
        socket.gethostname().upper() + ":8085",
        "amps.example.com",
        "AMPS.example.com:443",
        "a.b.inner.example",
        "console.example",
    ],
)
def test_hosts_that_are_known(start_admin: StartAdmin, host: str) -> None:
    """Addresses, this host's name and configured names are accepted with any port, since ports may be forwarded."""
    xml = (
        "<AllowedHost>Amps.example.com</AllowedHost><AllowedHost>*.inner.example</AllowedHost>"
        "<TrustedOrigin>https://console.example:8443</TrustedOrigin>"
    )
    admin = start_admin(actions_xml=ACTIONS, admin_xml=xml)
    assert raw(admin.port, f"GET {OPERATION} HTTP/1.1", f"Host: {host}")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("inner.example", 421),
        ("xinner.example", 421),
        ("2130706433", 421),
        ("0x7f.1", 421),
        ("127.0.0.01", 421),
        ("127.1", 421),
        ("[::1", 400),
        ("::1", 400),
        ("[::1]x", 400),
        ("[1.2.3.4]", 400),
        ("[fe80::1%25eth0]", 400),
        ("localhost:99999", 400),
        ("localhost:x", 400),
        ("user@localhost", 400),
        ("localhost/x", 400),
        ("localhost, evil.example", 400),
        ("", 400),
        (":8085", 400),
        (".", 400),
        ("ev\u0131l.example", 400),
    ],
)
def test_hosts_that_are_not_known(start_admin: StartAdmin, host: str, status: int) -> None:
    """An unknown name that resolves to this address may belong to another site: nothing is read or done under it."""
    admin = start_admin(actions_xml=ACTIONS, admin_xml="<AllowedHost>*.inner.example</AllowedHost>")
    for path in (OPERATION, "/amps/instance/name", "/amps/instance.json"):
        found, received = raw(admin.port, f"GET {path} HTTP/1.1", f"Host: {host}")
        assert found == status, received
    assert not done(admin)
    if status == 421:
        assert f"<AllowedHost>{host.partition(':')[0]}</AllowedHost>" in admin.log.texts("19-0002")[0]


def test_requests_without_a_host_or_with_several(start_admin: StartAdmin) -> None:
    """Probes of load balancers use HTTP/1.0; browsers do not."""
    admin = start_admin(actions_xml=ACTIONS)
    assert raw(admin.port, f"GET {OPERATION} HTTP/1.0")[0] == 200
    assert len(done(admin)) == 1
    assert raw(admin.port, f"GET {OPERATION} HTTP/1.1")[0] == 400
    for version in ("1.0", "1.1"):
        assert (
            raw(admin.port, f"GET {OPERATION} HTTP/{version}", "Host: localhost", "Host: evil.example")[0]
            == 400
        )
        assert (
            raw(admin.port, f"GET {OPERATION} HTTP/{version}", "Host: localhost", "Host: localhost")[0] == 400
        )
    # Without a Host header the interface has no origin of its own, so no Origin is accepted.
    assert raw(admin.port, f"GET {OPERATION} HTTP/1.0", f"Origin: http://localhost:{admin.port}")[0] == 403
    assert len(done(admin)) == 1


def test_an_absolute_url_names_its_host(start_admin: StartAdmin) -> None:
    admin = start_admin(actions_xml=ACTIONS)
    assert raw(admin.port, f"GET http://localhost{OPERATION}?A=1 HTTP/1.1", "Host: localhost")[0] == 200
    assert raw(admin.port, f"GET HTTP://127.0.0.1:1{OPERATION} HTTP/1.1", "Host: localhost")[0] == 200
    assert done(admin) == ["done [1]", "done []"]
    assert raw(admin.port, f"GET http://evil.example{OPERATION} HTTP/1.1", "Host: localhost")[0] == 421
    assert raw(admin.port, f"GET http://localhost{OPERATION} HTTP/1.1", "Host: evil.example")[0] == 421
    assert (
        raw(admin.port, f"GET http://localhost@evil.example{OPERATION} HTTP/1.1", "Host: localhost")[0] == 400
    )
    assert raw(admin.port, f"GET ftp://localhost{OPERATION} HTTP/1.1", "Host: localhost")[0] == 400
    assert raw(admin.port, "GET http://localhost HTTP/1.1", "Host: localhost")[0] == 302
    assert raw(admin.port, "GET amps HTTP/1.1", "Host: localhost")[0] == 400
    assert len(done(admin)) == 2


def test_forwarded_host_headers_are_ignored(start_admin: StartAdmin) -> None:
    admin = start_admin(actions_xml=ACTIONS)
    for name in ("X-Forwarded-Host", "Forwarded", "X-Host", "X-Original-Host"):
        headers = ("Host: evil.example", f"{name}: localhost")
        assert raw(admin.port, f"GET {OPERATION} HTTP/1.1", *headers)[0] == 421
    assert not done(admin)


def test_the_configured_address_may_be_a_name(start_admin: StartAdmin) -> None:
    admin = start_admin()
    known = server.Origins(admin.loaded.config.admin)  # type: ignore[arg-type]
    known._know("Some.Name.")
    known._check_name("some.name:8085")


# --- scripts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"User-Agent": "curl/8.5.0", "Accept": "*/*"},
        {"User-Agent": "Wget/1.21", "Accept": "*/*", "Accept-Encoding": "identity"},
        {"User-Agent": "Python-urllib/3.11"},
        {"User-Agent": "python-requests/2.32", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"},
        {"User-Agent": "Go-http-client/1.1"},
        {"User-Agent": "node", "Accept": "*/*", "Accept-Language": "*", "Sec-Fetch-Mode": "cors"},
        {"User-Agent": "curl/8.5.0", "Accept": "application/json"},
    ],
)
def test_operations_5_4_a_script_does_it_by_a_get(start_admin: StartAdmin, headers: dict[str, str]) -> None:
    """operations.md §5.1, §5.4: scripts call operations by GET as documented, in every format."""
    admin = start_admin(actions_xml=ACTIONS, journals=JOURNALS)
    assert admin.get(f"{OPERATION}?A=1", headers=headers).body == "success\n"
    assert admin.get(f"{OPERATION}.json", headers=headers).json() == {"status": "success"}
    assert admin.get(f"{OPERATION}.xml", headers=headers).body == "<status>success</status>\n"
    for verb in ("archive", "compress", "remove"):
        assert admin.get(f"{JOURNAL_PAGE}/{verb}", headers=headers).status == 200
    assert admin.get("/amps/administrator/diagnostics/dump", headers=headers).status == 200
    assert done(admin) == ["done [1]", "done []", "done []", "archive", "compress", "remove"]


@pytest.mark.parametrize("command", ["curl", "wget"])
def test_operations_5_4_programs(start_admin: StartAdmin, command: str, tmp_path: Path) -> None:
    """operations.md §5.4: the same with real programs."""
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    admin = start_admin(actions_xml=ACTIONS)
    output = {"curl": ["-sS", "--noproxy", "*"], "wget": ["-q", "--no-proxy", "-O", "-"]}[command]
    url = f"http://localhost:{admin.port}{OPERATION}.json"
    said = subprocess.run(
        [command, *output, url], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True
    )
    assert said.stdout == '{"status":"success"}\n'


# --- browsers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "file://"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:{other}"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://localhost:{port}"},
        {"Origin": "http://127.0.0.1:{port}, http://evil.example"},
        {"Origin": "garbage"},
    ],
)
def test_a_page_of_another_origin_neither_reads_nor_does(
    start_admin: StartAdmin, headers: dict[str, str]
) -> None:
    admin = start_admin(actions_xml=ACTIONS)
    sent = {name: value.format(port=admin.port, other=admin.port ^ 1) for name, value in headers.items()}
    for agent in ({}, {"User-Agent": CHROME}):
        assert admin.get(OPERATION, headers=sent | agent).status == 403
        if sent["Origin"]:  # browsers send no empty Origin; it gives no access
            answer = admin.get("/amps/instance/name", headers=sent | agent)
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (403, None)
    assert not done(admin)


@pytest.mark.parametrize(
    "headers",
    [
        {"Referer": "http://evil.example/x"},
        {"Referer": "https://127.0.0.1:{port}/amps"},
        {"Referer": "about:blank"},
        {"Referer": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Referer": "http://127.0.0.1:{port}/amps"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "new-site"},
        {
            "User-Agent": CHROME,
            "Accept": "image/avif,image/webp,*/*;q=0.8",
            "Referer": "http://evil.example/",
        },
    ],
)
def test_a_page_from_elsewhere_can_do_nothing(start_admin: StartAdmin, headers: dict[str, str]) -> None:
    """A link to a page is harmless, wherever it stands: other sites cannot read the page."""
    admin = start_admin(actions_xml=ACTIONS)
    sent = {name: value.format(port=admin.port) for name, value in headers.items()}
    for suffix in ("", ".json", ".xml"):
        answer = admin.get(OPERATION + suffix, headers=sent)
        assert answer.status == 403
        assert not forms(answer.body)
    if "Origin" not in sent:
        assert admin.get("/amps/instance/name", headers=sent).status == 200
    assert not done(admin)


@pytest.mark.parametrize(
    "headers",
    [
        {"User-Agent": CHROME},
        {"User-Agent": CHROME, "Accept": "image/avif,image/webp,image/*,*/*;q=0.8"},
        {"User-Agent": "Opera/9.80"},
        {"Accept": "text/html,application/xhtml+xml"},
        {"Accept-Language": "en"},
        {"Upgrade-Insecure-Requests": "1"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Dest": "image"},
        {"Sec-Purpose": "prefetch;prerender"},
        {"Purpose": "prefetch"},
        {"X-Moz": "prefetch"},
        {"Sec-WebSocket-Key": "x", "Upgrade": "websocket", "Connection": "Upgrade"},
        {"Referer": "http://127.0.0.1:{port}/amps/administrator"},
        {"Origin": "http://127.0.0.1:{port}"},
        {"ORIGIN": "HTTP://127.0.0.1:{port}"},
        {"User-Agent": CHROME, "X-HTTP-Method-Override": "POST"},
    ],
)
def test_a_browser_does_nothing_by_a_get(start_admin: StartAdmin, headers: dict[str, str]) -> None:
    """Pages contain no links to operations. A browser that opens the address of one is shown a form to confirm."""
    admin = start_admin(actions_xml=ACTIONS)
    sent = {name: value.format(port=admin.port) for name, value in headers.items()}
    for suffix in ("", ".json", ".xml"):
        answer = admin.get(f"{OPERATION}{suffix}?A=a%26%22%3Cb", headers=sent)
        assert (answer.status, answer.headers["Content-Type"]) == (403, "text/html; charset=utf-8")
        (form,) = forms(answer.body)
        assert form["A"] == 'a&"<b'
    assert not done(admin)
    assert "has to confirm it on /amps/administrator/actions" in admin.log.texts("19-0002")[0]
    assert send(admin, form).status == 200
    assert done(admin) == ['done [a&"<b]']


def test_no_method_but_get_runs_an_operation(start_admin: StartAdmin) -> None:
    """No method but GET runs an operation, apart from the POST of a form that was shown.

    All others are answered 405.
    """
    admin = start_admin(
        actions_xml=ACTIONS, admin_xml="<AccessControlAllowOrigin>^https://good$</AccessControlAllowOrigin>"
    )
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "POST", "TRACE"):
        for headers in (
            {},
            {"X-HTTP-Method-Override": "GET", "X-Method-Override": "GET"},
            {"Origin": "https://good", "Access-Control-Request-Method": "GET"},
        ):
            answer = admin.get(OPERATION, method=method, headers=headers)
            assert answer.status == 405
    assert (
        admin.get(
            f"{OPERATION}?_method=POST&{confirmations.CONFIRMED_FIELD}=yes", headers={"User-Agent": CHROME}
        ).status
        == 403
    )
    assert not done(admin)


def test_origins_that_may_read_may_do_nothing(start_admin: StartAdmin) -> None:
    """`AccessControlAllowOrigin` permits reading answers only."""
    admin = start_admin(
        actions_xml=ACTIONS, admin_xml="<AccessControlAllowOrigin>^https://good$</AccessControlAllowOrigin>"
    )
    headers = {"Origin": "https://good", "Sec-Fetch-Site": "cross-site", "User-Agent": CHROME}
    answer = admin.get("/amps/instance/name", headers=headers)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "https://good")
    assert admin.get(OPERATION, headers=headers).status == 403
    assert send(admin, form_of(admin, ACTION_PAGE, "p"), headers).status == 403
    assert admin.get("/amps/instance/name", headers={"Origin": "https://good.evil.example"}).status == 403
    assert not done(admin)


# --- forms ------------------------------------------------------------------------------------------------


def test_a_confirmed_form(start_admin: StartAdmin) -> None:
    admin = start_admin(actions_xml=NEEDY, journals=JOURNALS)
    for verb in ("archive", "compress", "remove"):
        answer = send(admin, form_of(admin, JOURNAL_PAGE, verb), {"Sec-Fetch-Site": "same-origin"})
        assert answer.status == 200
        assert "success" in answer.body
        assert admin.core.asked[-1] == (verb, [{"up_to": 1}])
    form = form_of(admin, ACTION_PAGE, "needy")
    assert {"AGE", "B"} <= set(form)
    assert send(admin, form | {"AGE": "1d", "B": "ü&x"}).status == 200
    assert admin.log.texts("29-0001") == ["[1d|ü&x|]"]
    shown = admin.get(f"{ACTION_PAGE}/needy?C=3&AGE=2d", headers={"User-Agent": CHROME})
    (form,) = forms(shown.body)
    assert send(admin, form | {"B": "b"}).status == 200
    assert admin.log.texts("29-0001")[1:] == ["[2d|b|3]"]
    assert len(admin.log.texts("19-0003")) == 5


def test_a_form_that_is_not_valid(start_admin: StartAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = start_admin(actions_xml=ACTIONS, journals=JOURNALS)
    form = form_of(admin, ACTION_PAGE, "p")
    token = form[confirmations.TOKEN_FIELD]
    unconfirmed = {name: value for name, value in form.items() if name != confirmations.CONFIRMED_FIELD}
    assert send(admin, unconfirmed).status == 403
    for wrong in (
        "",
        ".",
        "x",
        token[:-1],
        "9" + token,
        "\u00fc",
        form_of(admin, JOURNAL_PAGE, "remove")[confirmations.TOKEN_FIELD],
    ):
        assert send(admin, form | {confirmations.TOKEN_FIELD: wrong}).status == 403
    other = form_of(admin, JOURNAL_PAGE, "archive") | {confirmations.OPERATION_FIELD: "remove"}
    assert send(admin, other).status == 403
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "", "Referer": "http://evil.example/"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert send(admin, form, headers).status == 403
    for content_type in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
        assert send(admin, form, {"Content-Type": content_type}).status == 405
    assert send(admin, form | {confirmations.OPERATION_FIELD: ""}).status == 404
    assert send(admin, form | {confirmations.OPERATION_FIELD: "q"}).status == 404
    assert send(admin, form | {"action": OPERATION}).status == 404
    assert (
        send(admin, form | {"action": "/amps/instance", confirmations.OPERATION_FIELD: "name"}).status == 404
    )
    assert send(admin, form | {f"a{number}": "" for number in range(300)}).status == 400
    assert send(admin, form | {"a": "x" * 70_000}).status == 413
    assert not done(admin)
    assert send(admin, form, {"Origin": ""}).status == 200, (
        "no header says where it comes from, the token does"
    )
    assert send(admin, form).status == 403, "it was used"
    assert len(done(admin)) == 1
    late = form_of(admin, ACTION_PAGE, "p")
    monkeypatch.setattr(confirmations, "TOKEN_LIFE_S", -1)
    assert send(admin, form_of(admin, ACTION_PAGE, "p")).status == 403
    assert send(admin, late).status == 200


def test_a_form_that_does_not_arrive_whole(start_admin: StartAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FORM_WAIT_S", 0.3)
    admin = start_admin(actions_xml=ACTIONS)
    status, _ = raw(
        admin.port,
        f"POST {ACTION_PAGE} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Length: 1000",
    )
    assert status == 408


def test_a_form_is_valid_for_its_user_only(start_admin: StartAdmin) -> None:
    """operations.md §8: permissions are checked when the form arrives.

    A form shown to one user is refused from another.
    """
    xml = (
        "<Authentication><Module>amps-default-authentication-module</Module>"
        "<Options><RequireUsername>true</RequireUsername><AllowSpoofing>true</AllowSpoofing></Options>"
        "</Authentication>"
    )
    admin = start_admin(actions_xml=ACTIONS, admin_xml=xml)
    shown = admin.get(ACTION_PAGE, credentials=("me", "x"))
    (form,) = forms(shown.body)
    assert send(admin, form).status == 401
    assert send(admin, form, credentials=("you", "x")).status == 403
    assert not done(admin)
    assert send(admin, form, credentials=("me", "x")).status == 200


def test_operations_41_no_form_for_a_denied_operation(start_admin: StartAdmin) -> None:
    """operations.md §4, §13 41: controls that change something are hidden where they are denied."""
    xml = (
        "<Entitlement><Module>simple</Module><Options><DeniedTopics>journal/(archive|remove)$</DeniedTopics>"
        "</Options></Entitlement>"
    )
    library = "libamps_simple_access_entitlement.so"
    modules = f"<Modules><Module><Name>simple</Name><Library>{library}</Library></Module></Modules>"
    admin = start_admin(admin_xml=xml, instance_xml=modules, journals=JOURNALS)
    shown = forms(admin.get(JOURNAL_PAGE).body)
    assert [form[confirmations.OPERATION_FIELD] for form in shown] == ["compress"]
    assert send(admin, shown[0] | {confirmations.OPERATION_FIELD: "remove"}).status == 403
    assert not done(admin)


def test_a_trusted_origin_is_like_the_interface_s_own(start_admin: StartAdmin) -> None:
    """Behind a proxy that handles TLS, pages have an origin that the interface cannot derive itself."""
    admin = start_admin(actions_xml=ACTIONS, admin_xml="<TrustedOrigin>https://Ops.example/</TrustedOrigin>")
    headers = {"Host": "ops.example", "Origin": "https://ops.example", "Sec-Fetch-Site": "same-origin"}
    assert send(admin, form_of(admin, ACTION_PAGE, "p"), headers).status == 200
    headers = {"Origin": "https://ops.example", "Sec-Fetch-Site": "cross-site"}
    answer = admin.get(ACTION_PAGE, headers=headers)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "https://ops.example")
    assert admin.get(OPERATION, headers=headers).status == 403
    (form,) = forms(answer.body)
    assert send(admin, form, headers).status == 200
    assert send(admin, form_of(admin, ACTION_PAGE, "p"), {"Origin": "http://ops.example"}).status == 403
    assert len(done(admin)) == 2


def test_https_has_an_origin_of_its_own(start_admin: StartAdmin, authority: Authority) -> None:
    issued = authority.issue("localhost")
    xml = f"<Certificate>{issued.certificate}</Certificate><PrivateKey>{issued.private_key}</PrivateKey>"
    admin = start_admin(actions_xml=ACTIONS, admin_xml=xml)
    options = {"host": "localhost", "tls": authority.client_context()}

    def ask(path: str, **headers: str) -> Answer:
        return get(admin.port, path, headers=headers, **options)  # type: ignore[arg-type]

    assert ask(OPERATION).body == "success\n"
    assert ask(OPERATION, Origin=f"http://localhost:{admin.port}").status == 403
    assert ask(OPERATION, Host="evil.example").status == 421
    (form,) = forms(ask(OPERATION, Origin=f"https://localhost:{admin.port}").body)
    sent = {"Origin": f"https://localhost:{admin.port}"}
    assert send(admin, form, sent, **options).status == 200
    assert len(done(admin)) == 2


# --- pages and crawlers -----------------------------------------------------------------------------------


def test_pages_cannot_be_framed(start_admin: StartAdmin) -> None:
    admin = start_admin(actions_xml=ACTIONS)
    for path in ("/amps", ACTION_PAGE, "/amps/none", "/amps.json"):
        headers = admin.get(path).headers
        assert headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize("referer", [False, True])
@pytest.mark.parametrize("agent", ["", CHROME])
def test_a_crawler_does_nothing(start_admin: StartAdmin, agent: str, referer: bool) -> None:
    """A crawler that follows every link and sends forms as GETs, with fields and without."""
    admin = start_admin(actions_xml=ACTIONS + NEEDY, journals=JOURNALS)
    waiting, seen, pages = [("/amps", "")], set(), 0
    while waiting:
        target, source = waiting.pop()
        if target in seen:
            continue
        seen.add(target)
        headers = {"User-Agent": agent} if agent else {}
        if referer and source:
            headers["Referer"] = f"http://127.0.0.1:{admin.port}{source}"
        answer = admin.get(target, headers=headers)
        if not answer.headers["Content-Type"].startswith("text/html"):
            continue
        pages += 1
        found = re.findall(r'(?:href|src|action)="([^"]*)"', answer.body)
        for form in forms(answer.body):
            fields = {name: value for name, value in form.items() if name != "action"}
            token = fields.pop(confirmations.TOKEN_FIELD)
            assert token
            found.append(form["action"] + "?" + urlencode(fields))
        for link in found:
            parts = urlsplit(urljoin(f"http://127.0.0.1:{admin.port}{target}", html.unescape(link)))
            waiting.append((parts.path + ("?" + parts.query if parts.query else ""), target))
    assert pages > 8
    assert f"{JOURNAL_PAGE}" in seen
    assert not done(admin)
    assert not admin.log.texts("19-0003")


@pytest.mark.skipif(shutil.which("wget") is None, reason="there is no wget")
def test_a_recursive_wget_does_nothing(start_admin: StartAdmin, tmp_path: Path) -> None:
    admin = start_admin(actions_xml=ACTIONS + NEEDY, journals=JOURNALS)
    subprocess.run(
        [
            "wget",
            "-q",
            "--no-proxy",
            "-r",
            "-l",
            "0",
            "-p",
            "-e",
            "robots=off",
            f"http://localhost:{admin.port}/amps",
        ],
        cwd=tmp_path,
        timeout=100,
        check=False,  # wget reports that some requests were refused
    )
    assert any("n.0000000001.journal" in str(path) for path in tmp_path.rglob("*"))
    assert not done(admin)
    assert not admin.log.texts("19-0003")
