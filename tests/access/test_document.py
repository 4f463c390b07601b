"""The access document: what is read, and that every mistake is refused with its place."""

from __future__ import annotations

import pytest

from tidemark.access.document import AccessDocument, rules_of
from tidemark.access.verifier import Verifier
from tidemark.errors import AccessError

VERIFIER = Verifier(4_096, b"salt", b"s" * 32, b"k" * 32)


def test_users_roles_and_rules_are_read() -> None:
    document = AccessDocument.parse(
        f"""
        [users.alice]
        roles = ["a"]
        password = "{VERIFIER.text}"
        claims = {{ region = "eu", level = 3, vip = true }}
        [roles.a]
        subscribe = ["t.>"]
        read."t.*" = "x = :claims.region"
        """,
        version=7,
    )
    assert document.version == 7
    assert document.users["alice"].password == VERIFIER
    assert dict(document.users["alice"].claims) == {"region": "eu", "level": 3, "vip": True}
    assert list(rules_of(document)) == [('roles.a.read."t.*"', "t.*", "x = :claims.region")]
    assert document.principal("bob") is None


def test_two_documents_of_one_version_are_told_apart() -> None:
    one, other = AccessDocument.parse("[roles.a]", 1), AccessDocument.parse("[roles.b]", 1)
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[", "is no TOML"),
        ("[" * 5_000, "is no TOML"),
        ("x = 1", "the document has the key 'x'"),
        ("users = 1", r"users is not a table of tables: write \[users.NAME\]"),
        ("[users.a]\nrole = []", "users.a has the key 'role': there are roles, claims, password"),
        ('[users.a]\nroles = ["b"]', r"has the role 'b', and there is no \[roles.b\]"),
        ("[users.a]\nclaims = { x = [1] }", "a claim is a text, a number, true or false"),
        ('[users.a]\npassword = "secret"', "users.a.password: this is no verifier"),
        ('[users."a\\nb"]', "is no user's name"),
        ('[users."*"]', "is no user's name"),
        ("[roles.a]\nmonitor = 1", "roles.a.monitor is true or false, not 1"),
        ('[roles.a]\npublish = "t"', r'write publish = \["..."\]'),
        ('[roles.a]\npublish = ["t..u"]', "roles.a.publish: 't..u'"),
        ('[roles.a]\npublish = ["{usr}"]', "has the parameter 'usr'"),
        ('[roles.a]\ndurable = ["*a*b*c*d*"]', "more than 4"),
        ('[roles.a]\nread."t" = "x ="', r'roles.a.read."t": expected'),
        ('[roles.a]\nread."t" = "x = :who"', "has the parameter 'who'"),
        ('[roles.a]\nread."t" = 5', 'write read."PATTERN" = "SELECTOR"'),
        ('[roles.a]\ndeny.read = ["t"]', "roles.a.deny has the key 'read'"),
        ("[roles.a]\ndeny = 1", "roles.a.deny is not a table"),
    ],
)
def test_a_mistake_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(AccessError, match=reason):
        AccessDocument.parse(text)


def test_an_error_never_shows_a_password() -> None:
    with pytest.raises(AccessError) as caught:
        AccessDocument.parse('[users.a]\npassword = "hunter2"')
    assert "hunter2" not in str(caught.value)
    assert "c2Fs" not in repr(VERIFIER)


@pytest.mark.parametrize(
    "text",
    [
        VERIFIER.text.replace("4096", "1"),
        VERIFIER.text[:-4],
        VERIFIER.text.replace("$", ":"),
        VERIFIER.text + "=",
        VERIFIER.text.replace("4096", "9999999"),
        "",
    ],
)
def test_what_is_no_verifier_is_refused(text: str) -> None:
    with pytest.raises(AccessError):
        Verifier.parse(text)
    assert Verifier.parse(VERIFIER.text) == VERIFIER


def test_somebody_has_to_administer() -> None:
    role, user = "[roles.boss]\nadminister = true\n", '[users.{0}]\nroles = ["{0}"]\n'
    AccessDocument.parse(role + user.format("boss")).check_administered()
    with pytest.raises(AccessError, match=r"no user administers.*'boss'"):
        AccessDocument.parse(role).check_administered()
    with pytest.raises(AccessError, match="no role of the document administers"):
        AccessDocument.parse("[roles.a]\n" + user.format("a")).check_administered()
    # Where tokens bring roles, the users are not in the document.
    AccessDocument.parse(role).check_administered(by_tokens=True)
    with pytest.raises(AccessError, match="no role of the document administers"):
        AccessDocument.parse("[roles.a]").check_administered(by_tokens=True)
