"""Logins, step by step: what the other side learns of users, and what nobody can say to get in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tidemark.access.document import AccessDocument
from tidemark.access.verifier import SCHEME
from tidemark.node.security.bearer import BearerKeys
from tidemark.node.security.login import BEARER, LoginAttempt, LoginError, UserAccounts, make_verifier
from tidemark.wire.limits import PROOF_BYTES_MAX
from tidemark.wire.security.frames import Login, Proof

NAMES = [f"user-{number}" for number in range(20)]
STRANGERS = [f"stranger-{number}" for number in range(200)]
SECRET = "s" * 40


def text_of(names: list[str]) -> str:
    users = [f'[users.{name}]\nroles = ["r"]\npassword = "{make_verifier(name).text}"\n' for name in names]
    return "".join(users) + "[roles.r]\nadminister = true\n"


TEXT = text_of(NAMES)
DOCUMENT = AccessDocument.parse(TEXT, 1)


def first_answer(accounts: UserAccounts, name: str) -> tuple[str, str]:
    """The salt and the iterations that somebody is told who wants to be `name`."""
    answer = LoginAttempt(accounts).step(Proof(SCHEME, f"n,,n={name},r=mine"))
    assert isinstance(answer, Login)
    _, salt, iterations = answer.payload.split(",")
    return salt, iterations


def test_an_unknown_user_has_the_same_salt_at_every_broker_and_after_a_restart() -> None:
    here, there = UserAccounts(DOCUMENT), UserAccounts(AccessDocument.parse(TEXT, 1))
    for name in (*NAMES, *STRANGERS):
        assert first_answer(here, name) == first_answer(there, name) == first_answer(here, name)
    assert len({first_answer(here, name)[0] for name in STRANGERS}) == len(STRANGERS)


def test_a_changed_password_changes_the_salts_of_few_names_as_the_document_changes() -> None:
    accounts = UserAccounts(DOCUMENT)
    before = {name: first_answer(accounts, name) for name in (*NAMES, *STRANGERS)}
    changed = TEXT.replace(make_line(TEXT, "user-7"), make_verifier("another").text)
    accounts.document = AccessDocument.parse(changed, 2)
    after = {name: first_answer(accounts, name) for name in (*NAMES, *STRANGERS)}
    assert [name for name in NAMES if before[name] != after[name]] == ["user-7"]
    assert sum(before[name] != after[name] for name in STRANGERS) < len(STRANGERS) // 2


def make_line(text: str, name: str) -> str:
    """The verifier that the document has for a user."""
    return text.partition(f"[users.{name}]")[2].partition('password = "')[2].partition('"')[0]


def test_unknown_users_seem_to_have_the_iterations_and_salts_that_users_have() -> None:
    other = "SCRAM-SHA-256$10000:" + base64.b64encode(bytes(24)).decode()
    keys = ":".join(base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
    text = f'[users.a]\nroles = ["r"]\npassword = "{other}${keys}"\n[roles.r]\nadminister = true\n'
    accounts = UserAccounts(AccessDocument.parse(text, 1))
    for name in ("a", *STRANGERS[:5]):
        salt, iterations = first_answer(accounts, name)
        assert iterations == "i=10000"
        assert len(base64.b64decode(salt.removeprefix("s="))) == 24


def test_a_wrong_password_takes_the_same_steps_for_a_user_and_for_nobody() -> None:
    accounts = UserAccounts(DOCUMENT)
    wrong = "c=biws,r={},p=" + base64.b64encode(bytes(32)).decode()

    def steps_of(name: str) -> Counter[str]:
        """Every function that a login with a wrong password calls, in Python and in C, and how often."""
        seen: Counter[str] = Counter()

        def called(frame: FrameType, event: str, function: Any) -> None:
            if event in ("call", "c_call"):
                seen[frame.f_code.co_qualname if event == "call" else repr(function.__name__)] += 1

        sys.setprofile(called)
        try:
            with pytest.raises(LoginError):
                both_steps(LoginAttempt(accounts), f"n,,n={name},r=mine", wrong)
        finally:
            sys.setprofile(None)
        return seen

    steps_of("user-1")  # what is made once is made now
    assert steps_of("user-1") == steps_of("nobody") == steps_of("user-2")  # names of one length
    assert steps_of("user-1")["LoginAttempt._final"] == 1


def test_a_document_without_passwords_lets_nobody_in_by_one() -> None:
    accounts = UserAccounts(
        AccessDocument.parse('[users.a]\nroles = ["r"]\n[roles.r]\nadminister = true\n', 1)
    )
    assert first_answer(accounts, "a") == first_answer(accounts, "a")


FIRSTS = (
    "",
    "n,,",
    "n,,n=user-1",
    "n,,n=user-1,r=",
    "y,,n=user-1,r=x",
    "p=tls-unique,,n=user-1,r=x",
    "n,a=user-2,n=user-1,r=x",
    "n,,m=x,n=user-1,r=x",
    "n,,n==2Ca,r=x",
    "n,,n=\x00,r=x",
    "n,,r=x,n=user-1",
    ",,,,,",
    "n,,=,=",
    "n,,n=user-1,r=x\n",
)
FINALS = (
    "",
    "c=biws",
    "c=biws,r={},p=",
    "c=biws,r={},p=!!",
    "c=,r={},p=AAAA",
    "=,=,=",
    "c=\xff,r={},p=\xff",
    "c=biws,r={},p=" + "A" * 4_000,
    "c=biws,p=AAAA,r={}",
    "c=eSws,r={},p=AAAA",
)


@pytest.mark.parametrize("first", FIRSTS)
def test_a_malformed_proof_is_a_failed_login(first: str) -> None:
    accounts = UserAccounts(DOCUMENT)
    for final in FINALS:
        with pytest.raises(LoginError):
            both_steps(LoginAttempt(accounts), first, final)


def both_steps(attempt: LoginAttempt, first: str, final: str) -> None:
    """Say both proofs of SCRAM; the second may have the broker's nonce in it."""
    answer = attempt.step(Proof(SCHEME, first))
    assert isinstance(answer, Login)
    attempt.step(Proof(SCHEME, final.format(answer.payload.partition(",")[0][2:])))


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(payload: str, header: str = '{"alg":"HS256"}') -> str:
    """A token that is signed with the key of the broker, whatever it says."""
    signed = f"{encoded(header.encode())}.{encoded(payload.encode())}"
    return f"{signed}.{encoded(hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest())}"


LATER = '"exp":99999999999'
DEEP = "[" * 2_000 + "]" * 2_000


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "..",
        "é.é.é",
        token("{}", "[]"),
        token("{}", "[" * (PROOF_BYTES_MAX // 2)),
        token("{}", '{"alg":"HS256","kid":' + DEEP + "}"),
        token("{}", '{"alg":"HS256","n":' + "9" * 5_000 + "}"),
        token(f'{{"sub":"user-1",{LATER}}}', '{"alg":"none"}'),
        token(f'{{"sub":"user-1",{LATER}}}', '{"alg":"RS256"}'),
        token(f'{{"sub":"user-1",{LATER}}}', '{"alg":"HS256","crit":["x"],"x":1}'),
        token('{"sub":"user-1","exp":1e999}'),
        token('{"sub":"user-1","exp":NaN}'),
        token('{"sub":"user-1","exp":' + "9" * 400 + "}"),
        token(f'{{"sub":"user-1",{LATER},"nbf":1e999}}'),
        token(f'{{"sub":["user-1"],{LATER}}}'),
        token(f'{{"sub":"*broker",{LATER}}}'),
        token(f'{{"sub":"\\ud800",{LATER}}}'),
        token(f'{{"sub":"user-1",{LATER},"deep":{DEEP}}}'),
        token("[1]"),
    ],
)
def test_a_token_that_makes_no_sense_is_a_failed_login_and_is_not_repeated(
    wrong: str, tmp_path: Path
) -> None:
    pytest.importorskip("jwt")
    (tmp_path / "key").write_text(SECRET)
    accounts = UserAccounts(DOCUMENT, BearerKeys(str(tmp_path / "key")))
    with pytest.raises(LoginError) as caught:
        LoginAttempt(accounts).step(Proof(BEARER, wrong))
    assert not wrong or wrong not in caught.value.cause
    assert len(caught.value.cause) <= 220


def test_claims_that_no_rule_can_compare_are_left_out(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    (tmp_path / "key").write_text(SECRET)
    said = f'{{"sub":"zoe",{LATER},"x":1e999,"y":NaN,"z":"\\ud800","n":5,"list":[1]}}'
    principal, _ = BearerKeys(str(tmp_path / "key")).check(token(said))
    assert principal.claims == {"sub": "zoe", "n": 5}
