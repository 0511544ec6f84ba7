"""Actions and the administration interface in a configuration: accepted and refused elements, with their places."""

import re
from pathlib import Path

import pytest

from amps.config import ActionModule, ConfigError, LoadedConfig, Severity, load
from amps.config.action_modules import ALIASES, CONDITIONS, EVENTS, STEPS

LOG = (
    "<TransactionLog><JournalDirectory>j</JournalDirectory>"
    "<Topic><Name>a</Name><MessageType>json</MessageType></Topic></TransactionLog>"
)
STARTUP = "<On><Module>amps-action-on-startup</Module></On>"


def module(element: str, name: str, options: str = "") -> str:
    return (
        f"<{element}><Module>{name}</Module>"
        + (f"<Options>{options}</Options>" if options else "")
        + f"</{element}>"
    )


def step(name: str, options: str = "") -> str:
    return module("Do", f"amps-action-do-{name}", options)


def read(inner: str) -> LoadedConfig:
    return load("a.xml", text=f"<AMPSConfig><Name>n</Name>{inner}</AMPSConfig>")


def action(inner: str, more: str = "") -> LoadedConfig:
    return read(f"{more}<Actions><Action>{inner}</Action></Actions>")


def errors(inner: str, more: str = "") -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        action(inner, more)
    return str(refusal.value).splitlines()


def test_operations_9_1_steps_keep_the_order_of_the_file() -> None:
    """operations.md §9.1: `Do` and `If` in the order of the file, after any number of `On`."""
    inner = (
        STARTUP
        + step("nothing")
        + module("If", "amps-action-if-condition", "<Condition>1 = 1</Condition>")
        + step("echo-message", "<Message>a</Message>")
        + module("On", "amps-action-on-shutdown")
        + module("If", "amps-action-if-file-system-usage", "<Path>/</Path><GreaterThan>90%</GreaterThan>")
    )
    (made,) = action(inner).config.actions
    assert [event.module for event in made.events] == ["amps-action-on-startup", "amps-action-on-shutdown"]
    assert [one.module.removeprefix("amps-action-") for one in made.steps] == [
        "do-nothing",
        "if-condition",
        "do-echo-message",
        "if-file-system-usage",
    ]
    assert made.steps[2] == ActionModule("amps-action-do-echo-message", {"Message": ("a",)}, "a.xml:1")


def on_publish(options: str, topic: str = "t") -> str:
    return module(
        "On", "amps-action-on-publish-message", f"<Topic>{topic}</Topic><MessageType>json</MessageType>{options}"
    )


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_operations_9_7_aliases(alias: str) -> None:
    """operations.md §9.7: other names of modules in the documents mean the same modules."""
    known = {**EVENTS, **STEPS, **CONDITIONS}
    assert ALIASES[alias] in known
    assert alias not in known


def test_operations_9_7_plural_names() -> None:
    """operations.md §9.7, transaction_log.md §13.1"""
    inner = STARTUP + step("compress-journals", "<Age>1d</Age>") + step("remove-journals", "<Age>2d</Age>")
    (made,) = action(inner, LOG).config.actions
    assert [one.module for one in made.steps] == [
        "amps-action-do-compress-journal",
        "amps-action-do-remove-journal",
    ]


@pytest.mark.parametrize(
    ("inner", "place", "text"),
    [
        (STARTUP + step("wish"), "Do/Module", "'amps-action-do-wish' is no step module"),
        (module("If", "amps-action-if-wish") + STARTUP, "If/Module", "is no condition module"),
        (
            STARTUP + step("echo-message"),
            "Do",
            "the option Message of amps-action-do-echo-message is missing",
        ),
        (STARTUP + step("nothing", "<Age>1</Age>"), "Do/Options/Age", "unknown option; the options of"),
        (
            STARTUP + step("remove-files", "<Age>soon</Age><Pattern>*</Pattern>"),
            "Do/Options/Age",
            "'soon' is not an interval",
        ),
        (
            STARTUP + step("remove-files", "<Age>1d</Age><Pattern>a</Pattern><Pattern>b</Pattern>"),
            "Do/Options/Pattern[2]",
            "given twice",
        ),
        (STARTUP + step("echo-message", "<Message><a/></Message>"), "Do/Options/Message", "not elements"),
        (module("On", "amps-action-on-schedule"), "On", "the option Every"),
        (
            module("On", "amps-action-on-schedule", "<Every>25:00</Every>"),
            "On/Options/Every",
            "no time of day",
        ),
        (
            module("On", "amps-action-on-signal", "<Signal>SIGQUIT</Signal>"),
            "On/Options/Signal",
            "reserved for minidumps",
        ),
        (module("On", "amps-action-on-signal", "<Signal>SIGKILL</Signal>"), "On/Options/Signal", "no signal"),
        (module("On", "amps-action-on-admin", "<Path>a/b</Path>"), "On/Options/Path", "a name without /"),
        (
            STARTUP + step("execute-event", "<Event>e</Event><EventVariable>v</EventVariable>"),
            "Do/Module",
            "exactly one",
        ),
        (STARTUP + step("execute-event"), "Do/Module", "exactly one"),
        (
            STARTUP + step("publish-message", "<Topic>t</Topic><MessageType>gif</MessageType><Data>d</Data>"),
            "Do/Options/MessageType",
            "unknown message type 'gif'",
        ),
        (
            module("If", "amps-action-if-condition", "<Condition>/a = </Condition>") + STARTUP,
            "If/Options/Condition",
            "this condition cannot be used",
        ),
        (
            STARTUP + step("extract-values", "<MessageType>json</MessageType><Value>A</Value>"),
            "Do/Options/Value",
            "not of the form VARIABLE=expression",
        ),
        (
            STARTUP + step("extract-values", "<MessageType>json</MessageType><Value>A = (</Value>"),
            "Do/Options/Value",
            "this value cannot be used",
        ),
        (
            STARTUP + step("archive-journal", "<Age>1d</Age>"),
            "Do/Module",
            "no journals without TransactionLog",
        ),
        (step("nothing"), "On", "the required element On is missing"),
        (on_publish("<MessageSource>remote</MessageSource>"), "On/Options/MessageSource", "is no source of messages"),
        (on_publish("<Filter>/a =</Filter>"), "On/Options/Filter", "this filter cannot be used"),
        (on_publish("<Options>timestamp,bookmark</Options>"), "On/Options/Options", "leave it out"),
        (on_publish("<Options>conflation=1s</Options>"), "On/Options/Options", "not supported yet: the option"),
        (on_publish("", topic="a(*"), "On/Options/Topic", "this expression for topics cannot be used"),
    ],
)
def test_operations_9_errors_have_file_and_line(inner: str, place: str, text: str) -> None:
    """operations.md §13 9: an action that cannot work prevents the start."""
    found = errors(inner)
    assert [line for line in found if text in line and line.startswith("a.xml:1: error: ")], found
    assert [line for line in found if f"AMPSConfig/Actions/Action/{place}: " in line], found


def test_operations_9_2_publishes_to_a_queue_have_the_underlying_topic() -> None:
    """operations.md §9.2: a subscription to the queue would lease its messages; an expression means topics only."""
    inner = "<Name>t</Name><MessageType>json</MessageType><UnderlyingTopic>a</UnderlyingTopic>"
    queue = f"<SOW><Queue>{inner}</Queue></SOW>"
    (error,) = errors(on_publish(""), LOG + queue)
    assert "'t' is a queue, whose messages this would lease; name its underlying topic" in error
    for topic in ("a", "^(t|a)$"):
        action(on_publish("<MessageSource>local</MessageSource>", topic) + step("nothing"), LOG + queue)


def test_transaction_log_r30_archiving_needs_a_directory() -> None:
    """transaction_log.md §20 30: archiving without JournalArchiveDirectory is refused."""
    (error,) = errors(STARTUP + step("archive-journal", "<Age>1d</Age>"), LOG)
    assert "add JournalArchiveDirectory to TransactionLog" in error


@pytest.mark.parametrize(
    "name", sorted(name for name in {**EVENTS, **STEPS} if {**EVENTS, **STEPS}[name].later)
)
def test_modules_that_are_not_built_are_refused_by_name(name: str) -> None:
    element = "On" if "-on-" in name else "Do"
    inner = module(element, name) + (STARTUP if element == "Do" else "")
    (error,) = errors(inner)
    assert re.search(r"not supported yet: .{5,}", error)


def test_a_delta_publish_is_refused_until_sow_topics_exist() -> None:
    options = "<Topic>t</Topic><MessageType>json</MessageType><Data>d</Data><Delta>true</Delta>"
    (error,) = errors(STARTUP + step("publish-message", options))
    assert "not supported yet: delta publishes" in error
    action(STARTUP + step("publish-message", options.replace("true", "false")))


def test_options_with_variables_are_checked_when_they_run() -> None:
    inner = STARTUP + step("remove-files", "<Age>{{AGE}}</Age><Pattern>*.{{A}}</Pattern>")
    assert not action(inner).findings


def test_a_command_with_text_of_a_request_gives_a_warning() -> None:
    admin = "<Admin><InetAddr>8085</InetAddr></Admin>"
    by_path = module("On", "amps-action-on-admin", "<Path>p</Path>")
    command = step("execute-system", "<Command>echo {{A}}</Command>")
    (finding,) = action(by_path + command, admin).findings
    assert "the request for the action sets" in finding.text
    assert not action(STARTUP + command, admin).findings


def test_an_action_that_no_request_can_start_gives_a_warning() -> None:
    (finding,) = action(module("On", "amps-action-on-admin", "<Path>p</Path>") + step("nothing")).findings
    assert "add it" in finding.text


# --- Admin ------------------------------------------------------------------------------------------------


def test_operations_4_elements_of_admin() -> None:
    """operations.md §4"""
    admin = read(
        "<Admin><InetAddr>10.0.0.1:8085</InetAddr><AnonymousPaths>^/amps$</AnonymousPaths>"
        "<Header>Vary: Origin</Header><Header>X-A:b</Header><FileName>:memory:</FileName>"
        '<WWWAuthenticate>Basic realm="x"</WWWAuthenticate><Galvanometer>disabled</Galvanometer>'
        "<AccessControlAllowOrigin>^https://a</AccessControlAllowOrigin>"
        "<AllowedHost>A.example.</AllowedHost><AllowedHost>*.b.example</AllowedHost><AllowedHost>[0::1]</AllowedHost>"
        "<TrustedOrigin>HTTPS://Ops.example</TrustedOrigin><TrustedOrigin>http://[0::1]:80/</TrustedOrigin>"
        "<Authentication><Module>amps-default-authentication-module</Module></Authentication></Admin>"
    ).config.admin
    assert admin is not None
    assert (admin.transport.name, admin.transport.host, admin.transport.port) == (
        "amps-admin",
        "10.0.0.1",
        8085,
    )
    assert admin.transport.authentication is not None
    assert admin.headers == (("Vary", "Origin"), ("X-A", "b"))
    assert admin.anonymous_paths == "^/amps$"
    assert admin.allowed_origins == "^https://a"
    assert admin.allowed_hosts == ("a.example", "*.b.example", "[::1]")
    assert admin.trusted_origins == ("https://ops.example:443", "http://[::1]:80")
    assert admin.challenge == 'Basic realm="x"'


def test_operations_35_without_an_address_there_is_no_interface() -> None:
    """operations.md §13 35"""
    config = read("<Admin/>").config
    assert config.admin is None
    assert not config.has_services


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("<WWWAuthenticate>Negotiate</WWWAuthenticate>", "not supported yet: Kerberos"),
        ("<WWWAuthenticate>Please</WWWAuthenticate>", "Basic realm"),
        ("<Header>X-A b</Header>", "is no header"),
        ("<Header>Content-Length: 1</Header>", "set by the server"),
        ("<Header>X-A: a&#10;X-B: c</Header>", "characters that no header may have"),
        ("<AnonymousPaths>(</AnonymousPaths>", "not a regular expression"),
        ("<AccessControlAllowOrigin>*</AccessControlAllowOrigin>", "write '.*' if * stands for any text"),
        ("<AllowedHost>a.example:80</AllowedHost>", "without a port"),
        ("<AllowedHost>https://a.example</AllowedHost>", "no name of a host"),
        ("<AllowedHost>*</AllowedHost>", "no name of a host"),
        ("<AllowedHost>*.[::1]</AllowedHost>", "no name of a host"),
        ("<TrustedOrigin>a.example</TrustedOrigin>", "is no origin"),
        ("<TrustedOrigin>https://a.example/path</TrustedOrigin>", "is no origin"),
        ("<TrustedOrigin>null</TrustedOrigin>", "is no origin"),
        ("<TrustedOrigin>ftp://a.example</TrustedOrigin>", "is no origin"),
        ("<Certificate>c.pem</Certificate>", "PrivateKey is required"),
        ("<Certificate>c.pem</Certificate><PrivateKey>k.pem</PrivateKey>", "does not exist"),
        ("<Ciphers>x</Ciphers>", "no meaning without Certificate"),
        ("<Authentication><Module>m</Module></Authentication>", "no authentication module"),
    ],
)
def test_operations_4_errors_in_admin(inner: str, text: str) -> None:
    """operations.md §4"""
    with pytest.raises(ConfigError) as refusal:
        read(f"<Admin><InetAddr>8085</InetAddr>{inner}</Admin>")
    assert text in str(refusal.value)


def test_a_transport_has_the_address_of_admin() -> None:
    with pytest.raises(ConfigError, match="give each its own"):
        read(
            "<Transports><Transport><Name>t</Name><Type>tcp</Type><InetAddr>8085</InetAddr></Transport></Transports>"
            "<Admin><InetAddr>8085</InetAddr></Admin>"
        )


def test_the_place_of_an_action_is_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.xml"
    path.write_text(
        f"<AMPSConfig><Name>n</Name>\n<Actions>\n<Action>{STARTUP}\n{step('nothing')}</Action></Actions></AMPSConfig>"
    )
    (made,) = load(path).config.actions
    assert made.place == f"{path}:3"
    assert made.steps[0].place == f"{path}:4"


def _by_age(kind: str, age: str, event: str = "schedule") -> str:
    on = "<Every>15s</Every>" if event == "schedule" else "<Path>up</Path>"
    when = module("On", f"amps-action-on-{event}", on)
    return f"<Action>{when}{step(f'{kind}-replication', f'<Age>{age}</Age>')}</Action>"


@pytest.mark.parametrize(
    ("actions", "warned"),
    [
        (_by_age("downgrade", "60s") + _by_age("upgrade", "30s"), False),
        (_by_age("downgrade", "60s") + _by_age("upgrade", "60s"), True),
        (_by_age("upgrade", "300s") + _by_age("downgrade", "10s"), True),
        (_by_age("downgrade", "5m") + _by_age("downgrade", "20s") + _by_age("upgrade", "1m"), True),
        (_by_age("downgrade", "10s") + _by_age("upgrade", "300s", "admin"), False),
        (_by_age("downgrade", "10s", "admin") + _by_age("upgrade", "300s"), False),
        (_by_age("upgrade", "300s"), False),
        (_by_age("downgrade", "{{AGE}}") + _by_age("upgrade", "300s"), False),
    ],
)
def test_replication_8_links_that_flap_give_a_warning(actions: str, warned: bool) -> None:
    """replication.md §8, §22: the upgrade's `Age` is half of the downgrade's, else links flap."""
    destination = (
        "<Replication><Destination><Name>b</Name><SyncType>sync</SyncType><Topic><Name>t</Name><MessageType>json"
        "</MessageType></Topic><Transport><Type>amps-replication</Type><InetAddr>h:1</InetAddr></Transport>"
        "</Destination></Replication><TransactionLog><JournalDirectory>j</JournalDirectory><Topic><Name>t</Name>"
        "<MessageType>json</MessageType></Topic></TransactionLog><Admin><InetAddr>1</InetAddr></Admin>"
    )
    found = [one for one in read(f"{destination}<Actions>{actions}</Actions>").findings if "lag" in one.text]
    assert [one.severity for one in found] == [Severity.WARNING] * warned
    assert all("changes again and again" in one.text for one in found)
