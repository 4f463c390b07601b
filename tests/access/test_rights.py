"""Rights: what a principal may do and see, from the roles of a document."""

from __future__ import annotations

import pytest

from tidemark.access.document import AccessDocument
from tidemark.access.principal import BROKER_ITSELF, Principal, check_name
from tidemark.access.rights import Rights, check_rights
from tidemark.errors import AccessError, SelectorLimitError

DOCUMENT = AccessDocument.parse("""
[users.alice]
roles = ["trader", "clerk"]
claims = { region = "eu", limit = 5 }
[users.bob]
roles = ["trader"]
[users.carol]
roles = ["auditor", "sealed"]
[users.ops]
roles = ["operator"]
[users.lake]
roles = ["lake"]

[roles.trader]
subscribe = ["trades.>", "private.{user}.>"]
publish = ["orders.*"]
durable = ["{user}", "{user}.*"]
publisher = ["desk-{claims.region}"]
read."trades.>" = "region = :claims.region AND NOT restricted"
write."orders.*" = "account = :user AND qty <= :claims.limit"
[roles.clerk]
subscribe = ["trades.open", "notes"]
declare = ["notes", "trades.>"]
deny.declare = ["trades.open"]
[roles.auditor]
subscribe = [">"]
deny.subscribe = ["private.>"]
[roles.sealed]
restrict."trades.>" = "NOT secret"
[roles.operator]
administer = true
[roles.lake]
pipeline = true
""")


def rights(name: str) -> Rights:
    principal = DOCUMENT.principal(name)
    assert principal is not None
    return Rights(DOCUMENT, principal)


def test_a_rule_is_added_to_the_selector_with_its_parameters() -> None:
    found = rights("alice").restricted("trades.eu", "price > 10 OR qty = 1")
    assert found == "(price > 10 OR qty = 1) AND region = 'eu' AND NOT restricted"


def test_what_several_roles_show_is_joined_by_or() -> None:
    assert rights("alice").restricted("trades.open", "price > 10") == "price > 10"


def test_a_missing_claim_shows_nothing_and_widens_nothing() -> None:
    assert rights("bob").restricted("trades.eu", "") is None
    assert not rights("bob").may_publish_as("desk-eu")
    assert not rights("bob").may_publish_as("desk-")
    assert rights("bob").write_rule("orders.eu") == "FALSE"


def test_nobody_sees_a_topic_that_no_role_grants() -> None:
    assert rights("alice").restricted("secrets", "") is None
    assert rights("alice").restricted("private.bob.x", "") is None
    assert rights("alice").restricted("private.alice.x", "n = 1") == "n = 1"


def test_nobody_may_do_anything_with_a_topic_that_has_no_name() -> None:
    for name in ("alice", "carol"):
        found = rights(name)
        assert not found.may_publish("")
        assert not found.may_declare("")
        assert not found.may_know("")
        assert found.write_rule("") == "FALSE"


def test_a_pattern_over_more_than_is_granted_shows_only_what_is_granted() -> None:
    found = rights("alice").restricted(">", "")
    assert found is not None
    for text in ("_topic MATCHES 'trades.>'", "_topic MATCHES 'private.alice.>'", "region = 'eu'", "'notes'"):
        assert text in found


def test_what_is_denied_stays_denied_whatever_is_granted() -> None:
    assert rights("carol").restricted("private.carol.x", "") is None
    assert rights("carol").restricted("notes", "n = 1") == "n = 1"
    assert not rights("alice").may_declare("trades.open")
    assert rights("alice").may_declare("trades.eu")


def test_a_restriction_holds_beside_every_grant() -> None:
    assert rights("carol").restricted("trades.eu", "price > 1") == "price > 1 AND NOT secret"
    assert rights("carol").restricted("notes", "") == ""


def test_a_write_rule_has_its_parameters() -> None:
    assert rights("alice").may_publish("orders.eu")
    assert not rights("alice").may_publish("orders.eu.x")
    assert rights("alice").write_rule("orders.eu") == "account = 'alice' AND qty <= 5"
    assert rights("alice").write_rule("trades.eu") == "FALSE"


def test_names_belong_to_those_whose_pattern_fits() -> None:
    assert rights("alice").may_own("alice")
    assert rights("alice").may_own("alice.audit")
    assert not rights("alice").may_own("alicea")
    assert not rights("alice").may_own("bob.audit")
    assert rights("alice").may_publish_as("desk-eu")
    assert rights("alice").may_publish_as("publisher-0123456789abcdef")
    assert not rights("alice").may_publish_as("desk-us")


def test_a_user_whose_name_is_a_wildcard_does_not_become_one() -> None:
    evil = Principal("a.>", {}, ("trader",))
    assert Rights(DOCUMENT, evil).restricted("private.alice.x", "") is None
    assert not Rights(DOCUMENT, Principal("x", {"region": "*"}, ("trader",))).may_publish_as("desk-eu-2")


def test_text_in_a_claim_cannot_leave_its_literal() -> None:
    evil = Principal("eve", {"region": "x' OR TRUE OR region = 'y"}, ("trader",))
    found = Rights(DOCUMENT, evil).restricted("trades.eu", "")
    assert found == "region = 'x'' OR TRUE OR region = ''y' AND NOT restricted"


def test_the_selector_of_a_subscriber_cannot_loosen_the_rule() -> None:
    found = rights("alice").restricted("trades.eu", "a = 1 OR TRUE")
    assert found == "(a = 1 OR TRUE) AND region = 'eu' AND NOT restricted"


def test_operators_monitor_and_see_no_events_and_the_pipeline_sees_all() -> None:
    ops, lake = rights("ops"), rights("lake")
    assert ops.may_administer
    assert ops.may_monitor
    assert ops.restricted("trades.eu", "") is None
    assert lake.is_pipeline
    assert not lake.may_administer
    assert lake.restricted(">", "n > 1") == "n > 1"


def test_the_process_of_the_broker_sees_how_the_broker_stands_and_nothing_else() -> None:
    itself = Rights(DOCUMENT, BROKER_ITSELF)
    assert itself.may_monitor
    assert not itself.may_administer
    assert itself.restricted(">", "") is None
    assert not Rights(DOCUMENT, Principal(BROKER_ITSELF.name)).may_monitor
    with pytest.raises(AccessError):
        check_name(BROKER_ITSELF.name)


def test_nobody_may_do_anything_without_a_role() -> None:
    nobody = Rights(DOCUMENT, Principal("mallory"))
    assert nobody.restricted(">", "") is None
    topics = (nobody.may_publish("orders.eu"), nobody.may_declare("notes"), nobody.may_know("notes"))
    others = (nobody.may_own("mallory"), nobody.may_monitor, nobody.may_administer, nobody.is_pipeline)
    assert not any((*topics, *others))


def test_a_schema_is_known_to_those_who_may_use_its_topic() -> None:
    assert rights("alice").may_know("orders.eu")
    assert rights("alice").may_know("notes")
    assert not rights("alice").may_know("secrets")
    assert rights("ops").may_know("secrets")


def test_a_selector_that_is_too_long_with_its_rule_is_refused_by_name() -> None:
    own = " OR ".join(f"n = {number}" for number in range(48))
    with pytest.raises(SelectorLimitError, match="rules of access for 'alice'"):
        rights("alice").restricted(">", own)


def test_rules_that_are_too_long_together_are_refused_with_the_user() -> None:
    rules = "\n".join(f'read."t{number}.>" = "a = 1 AND b = 2 AND c = 3"' for number in range(40))
    text = f'[users.x]\nroles = ["r"]\n[roles.r]\nsubscribe = [">"]\n{rules}\n'
    with pytest.raises(AccessError, match=r"users\.x: the rules of its roles are too long"):
        check_rights(AccessDocument.parse(text))


LACKING = """
[users.alice]
roles = ["reader", "sealed"]
[roles.reader]
subscribe = ["trades.*.*"]
[roles.sealed]
"""


def _lacking(line: str) -> Rights:
    document = AccessDocument.parse(LACKING + line)
    return Rights(document, Principal("alice"))


def test_a_claim_that_is_missing_denies_restricts_and_hides_more_topics_not_fewer() -> None:
    denied = _lacking('deny.subscribe = ["trades.eu-{claims.desk}.>"]')
    assert denied.restricted("trades.us.a", "") is None
    restricted = _lacking('restrict."trades.{claims.region}.a" = "NOT secret"')
    assert restricted.restricted("trades.us.a", "") == "NOT secret"
    assert restricted.restricted("trades.us.b", "") == ""
    hiding = _lacking('hide."trades.{claims.region}.a" = ["party"]')
    assert hiding.hidden("trades.us.a") == (("trades.*.a", ("party",)),)
    assert hiding.hidden("trades.us.b") == ()


HIDING = AccessDocument.parse("""
[users.alice]
roles = ["reader", "other", "all"]
[users.lake]
roles = ["reader", "lake"]
[roles.reader]
subscribe = [">"]
read."trades.>" = "counterparty <> 'me'"
hide."trades.>" = ["counterparty", "fee"]
[roles.other]
hide."trades.>" = ["desk"]
hide."orders.{user}" = ["fee"]
[roles.all]
subscribe = [">"]
[roles.lake]
pipeline = true
""")


def test_a_field_that_one_role_hides_is_hidden_whatever_other_roles_show() -> None:
    alice = Rights(HIDING, Principal("alice"))
    assert alice.hidden("trades.eu") == (("trades.>", ("counterparty", "desk", "fee")),)
    assert alice.hidden("orders.alice") == (("orders.alice", ("fee",)),)
    assert alice.hidden("orders.bob") == ()
    assert len(alice.hidden(">")) == 2


def test_a_hidden_field_may_be_named_by_a_rule_and_by_no_selector() -> None:
    alice = Rights(HIDING, Principal("alice"))
    assert alice.hidden_in("trades.eu", "price > 1 AND NOT (fee IS NULL)") == "fee"
    assert alice.hidden_in("trades.eu", "counterparty.name = 'x'") == "counterparty"
    assert alice.hidden_in("orders.bob", "fee > 1") is None
    assert alice.hidden_in(">", "_topic MATCHES 'other.>' AND fee > 1") == "fee"
    assert alice.hidden_in("trades.eu", "price > 1") is None


def test_the_pipeline_sees_every_field() -> None:
    assert Rights(HIDING, Principal("lake")).hidden(">") == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('hide = ["a"]', "not a table of fields"),
        ('hide."t" = "a"', "not a list of texts"),
        ('hide."t" = ["_key"]', "is a header"),
        ('hide."t" = ["a.b"]', "hide the whole field 'a'"),
        ('hide."t" = [""]', "1 to 255 bytes"),
        ('hide."a..b" = ["x"]', "single dots"),
    ],
)
def test_a_mistake_in_what_is_hidden_is_refused(line: str, reason: str) -> None:
    with pytest.raises(AccessError, match=reason):
        AccessDocument.parse(f"[roles.r]\n{line}")
