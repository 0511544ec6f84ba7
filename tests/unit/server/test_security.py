"""The built-in authentication and entitlement modules, and the modules that a transport uses."""

import pytest

from amps.config import ModuleUse, ServerConfig, TransportConfig
from amps.server.security import (
    Decision,
    DefaultAuthenticator,
    Entitlement,
    FixedEntitlement,
    RefusingAuthenticator,
    SimpleAccessEntitlement,
    make_authenticator,
    make_entitlement,
)

DEFAULT = "amps-default-authentication-module"
IMPLICIT = "amps-implicit-authentication-module"
NOBODY = "amps-default-no-authentication-module"
ALL = "amps-default-entitlement-module"
NOTHING = "amps-default-no-entitlement-module"
SIMPLE = "libamps_simple_access_entitlement"


def config(**modules: ModuleUse) -> ServerConfig:
    return ServerConfig("test", "test", **modules)  # type: ignore[arg-type]


def transport(**modules: ModuleUse) -> TransportConfig:
    return TransportConfig("json", "tcp", **modules)  # type: ignore[arg-type]


def simple(**options: str | list[str]) -> SimpleAccessEntitlement:
    return SimpleAccessEntitlement(ModuleUse(SIMPLE, options))


def decide(use: ModuleUse, user: str = "ann", password: str = "") -> Decision:
    return make_authenticator(config(authentication=use), transport()).authenticate(user, password)


# --- authentication ---------------------------------------------------------------------------------------


def test_the_default_module_accepts_all_users_without_an_identity() -> None:
    authenticator = make_authenticator(config(), transport())
    for user in ("", "ann"):
        assert authenticator.authenticate(user, "whatever") == Decision(True, "", "authentication disabled")
    assert not authenticator.implicit_logon


@pytest.mark.parametrize("value", ["true", "Enabled", " 1 ", "YES", "on"])
def test_spoofing_lets_the_user_name_be_the_identity(value: str) -> None:
    assert decide(ModuleUse(DEFAULT, {"AllowSpoofing": value})).identity == "ann"


@pytest.mark.parametrize("value", ["false", "disabled", "0", ""])
def test_without_spoofing_there_is_no_identity(value: str) -> None:
    assert decide(ModuleUse(DEFAULT, {"AllowSpoofing": value})).identity == ""


def test_a_required_user_name_must_be_given() -> None:
    use = ModuleUse(DEFAULT, {"RequireUsername": "true"})
    assert decide(use, user="") == Decision(False, reason="auth failure")
    assert decide(use, user="ann").accepted


def test_a_logon_is_needed_unless_the_module_waives_it() -> None:
    uses = [
        (ModuleUse(DEFAULT), False),
        (ModuleUse(DEFAULT, {"RequireLogon": "true"}), False),
        (ModuleUse(DEFAULT, {"RequireLogon": "false"}), True),
        (ModuleUse(IMPLICIT), True),
        (ModuleUse(NOBODY), False),
    ]
    for use, implicit in uses:
        assert make_authenticator(config(authentication=use), transport()).implicit_logon is implicit, use


def test_the_refusing_module_refuses_all_users() -> None:
    assert decide(ModuleUse(NOBODY), user="ann", password="secret") == Decision(False, reason="auth failure")
    assert decide(ModuleUse(NOBODY), user="") == Decision(False, reason="auth failure")


def test_a_transport_s_own_authentication_overrides_the_instance_s() -> None:
    instance = config(authentication=ModuleUse(NOBODY))
    assert isinstance(make_authenticator(instance, transport()), RefusingAuthenticator)
    own = make_authenticator(instance, transport(authentication=ModuleUse(DEFAULT)))
    assert isinstance(own, DefaultAuthenticator)


# --- entitlement ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allow", [True, False])
def test_a_fixed_entitlement_is_all_or_nothing(allow: bool) -> None:
    entitlement: Entitlement = FixedEntitlement(allow)
    assert entitlement.allows_all is allow
    assert entitlement.may_log_on("ann") is allow
    for permission in ("read", "write"):
        assert entitlement.allows("ann", permission, "orders") is allow


def test_the_entitlement_of_a_transport() -> None:
    everything, nothing = ModuleUse(ALL), ModuleUse(NOTHING)
    allowed = ModuleUse(SIMPLE, {"AllowedTopics": "^orders$"})
    assert make_entitlement(config(), transport()).allows_all
    assert make_entitlement(config(entitlement=everything), transport()).allows_all
    assert not make_entitlement(config(entitlement=nothing), transport()).may_log_on("ann")
    assert make_entitlement(config(entitlement=nothing), transport(entitlement=everything)).allows_all
    own = make_entitlement(config(entitlement=everything), transport(entitlement=allowed))
    assert not own.allows_all
    assert own.may_log_on("ann")
    assert own.allows("ann", "read", "orders")
    assert not own.allows("ann", "read", "trades")


def test_allowed_topics_are_expressions() -> None:
    entitlement = simple(AllowedTopics="^(orders|trades)\\.")
    assert entitlement.allows("ann", "read", "orders.eu")
    assert entitlement.allows("ann", "write", "trades.us")
    assert not entitlement.allows("ann", "read", "my.orders.eu")
    assert not entitlement.allows("ann", "read", "Orders.eu")


def test_each_of_several_expressions_allows_its_matches() -> None:
    entitlement = simple(AllowedTopics=["^orders$", "^trades$"])
    allowed = [topic for topic in ("orders", "trades", "quotes") if entitlement.allows("", "read", topic)]
    assert allowed == ["orders", "trades"]


def test_a_name_without_regex_characters_is_an_unanchored_expression_too() -> None:
    entitlement = simple(AllowedTopics="orders")
    assert entitlement.allows("ann", "read", "orders")
    assert entitlement.allows("ann", "read", "my-orders-eu")
    assert not entitlement.allows("ann", "read", "order")


def test_every_literal_name_keeps_its_own_meaning() -> None:
    entitlement = simple(DeniedTopics=["first", "second"])
    allowed = [topic for topic in ("first", "second", "third") if entitlement.allows("", "read", topic)]
    assert allowed == ["third"]


def test_denied_topics_override_allowed_ones() -> None:
    entitlement = simple(AllowedTopics=".*", DeniedTopics="secret")
    assert entitlement.allows("ann", "read", "orders")
    assert not entitlement.allows("ann", "read", "orders/secret")


def test_with_denied_topics_alone_the_rest_is_allowed() -> None:
    entitlement = simple(DeniedTopics="^secret")
    assert entitlement.allows("ann", "write", "orders")
    assert not entitlement.allows("ann", "write", "secrets")


@pytest.mark.parametrize(
    ("granted", "permissions"),
    [
        (None, ["read", "write"]),
        ("read", ["read"]),
        ("WRITE", ["write"]),
        ("read, write", ["read", "write"]),
        (["read", "write"], ["read", "write"]),
    ],
)
def test_only_granted_permissions_are_given(granted: str | list[str] | None, permissions: list[str]) -> None:
    options: dict[str, str | list[str]] = {} if granted is None else {"GrantedPermissions": granted}
    entitlement = simple(AllowedTopics=".*", **options)
    assert [p for p in ("read", "write") if entitlement.allows("ann", p, "orders")] == permissions
