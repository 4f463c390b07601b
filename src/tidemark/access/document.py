"""AccessDocument: users, roles and rules, as an administrator writes them in TOML (docs/security.md).

What is not granted is denied, and what is denied stays denied whatever another role grants. The document is
checked as a whole when it is read: a document with a mistake is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from tidemark.access.parameters import parameters_of_name, parameters_of_rule, rule_for
from tidemark.access.principal import Claim, Principal, check_claims, check_name
from tidemark.access.quota import QUOTA_MAX, QUOTAS
from tidemark.access.verifier import Verifier
from tidemark.errors import AccessError, TidemarkError
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.message.codec.rest import Rest, no_rest
from tidemark.message.foreign.toml_text import read_toml
from tidemark.message.types import NAME_BYTES_MAX

#: Bytes of a document: it travels in one frame.
DOCUMENT_BYTES_MAX = 4 << 20
USERS_MAX = 20_000
ROLES_MAX = 2_000
#: Patterns, names or rules of one kind in one role.
ENTRIES_MAX = 200
#: Characters of a rule; the rules of a principal together have to leave room for its own selector.
RULE_CHARACTERS_MAX = 1_000
WILDCARDS_MAX = 4

Rules = Mapping[str, str]

#: What a role may have `deny` for.
DENIABLE = ("publish", "subscribe", "declare")


def _none() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Role:
    """What the principals that have the role may do. Patterns and names may have parameters."""

    name: str
    #: topic patterns
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    declare: tuple[str, ...] = ()
    #: names of durable subscriptions and of publishers, in which `*` stands for any characters
    durable: tuple[str, ...] = ()
    publisher: tuple[str, ...] = ()
    #: may ask how brokers, topics and subscriptions stand
    monitor: bool = False
    #: may change topologies, access and subscriptions of others
    administer: bool = False
    #: may keep the archive: read everything, report what is archived, answer recalls
    pipeline: bool = False
    #: topic pattern -> selector: of these topics the role sees, or may publish, only what is chosen
    read: Rules = field(default_factory=_none)
    write: Rules = field(default_factory=_none)
    #: the same, for whoever has this role whatever else other roles let it see
    restrict: Rules = field(default_factory=_none)
    #: topic pattern -> names of fields that whoever has this role does not see, whatever other roles show
    hide: Mapping[str, tuple[str, ...]] = field(default_factory=_none)
    #: name of a quota -> its value (`access.quota`)
    quota: Mapping[str, int] = field(default_factory=_none)
    #: publish, subscribe or declare -> topic patterns that are denied, whatever other roles grant
    deny: Mapping[str, tuple[str, ...]] = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class User:
    """A person or program that the document knows."""

    name: str
    roles: tuple[str, ...] = ()
    claims: Mapping[str, Claim] = field(default_factory=_none)
    #: what a password is checked against; None for who proves itself in another way
    password: Verifier | None = None


@dataclass(frozen=True, slots=True)
class AccessDocument:
    """The whole document. Of two, the one with the higher (version, digest) holds."""

    text: str
    users: Mapping[str, User]
    roles: Mapping[str, Role]
    version: int = 0

    @classmethod
    def parse(cls, text: str, version: int = 0, *, rest: Rest = no_rest) -> AccessDocument:
        """Read a document. AccessError, with the place, if there is a mistake in it."""
        try:
            found = read_toml(text, DOCUMENT_BYTES_MAX, rest)
        except ValueError as error:
            raise AccessError(f"the access document is no TOML: {error}") from None
        _only_keys(found, ("users", "roles"), "the document")
        roles = _section(found, "roles", ROLES_MAX)
        users = _section(found, "users", USERS_MAX)
        read_roles = {name: _role(name, each) for name, each in roles.items()}
        read_users = {name: _user(name, each, read_roles) for name, each in users.items()}
        return cls(text, MappingProxyType(read_users), MappingProxyType(read_roles), version)

    @property
    def digest(self) -> str:
        """Differs for two documents of one version."""
        return sha256(self.text.encode()).hexdigest()[:16]

    def supersedes(self, other: AccessDocument) -> bool:
        """Return whether a broker that goes by `other` goes by this document once it hears of it."""
        return (self.version, self.digest) > (other.version, other.digest)

    def check_administered(self, *, by_tokens: bool = False) -> None:
        """Raise AccessError if nobody administers: nobody could change the document again.

        `by_tokens`: bearer tokens bring roles, so that a role which administers is enough.
        """
        administering = {name for name, role in self.roles.items() if role.administer}
        if not administering:
            raise AccessError("no role of the document administers: nobody could change it again")
        if not by_tokens and not any(administering.intersection(user.roles) for user in self.users.values()):
            some = min(administering)
            raise AccessError(
                f"no user administers: nobody could change the document again; give a user the role {some!r}"
            )

    def principal(self, name: str) -> Principal | None:
        """Return the principal of a user, with the claims of the document; None if there is no such user."""
        user = self.users.get(name)
        return None if user is None else Principal(user.name, user.claims)


def _only_keys(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            raise AccessError(f"{where} has the key {key!r}: there are {', '.join(known)}")


def _section(found: Mapping[str, Any], name: str, most: int) -> dict[str, dict[str, Any]]:
    section = found.get(name, {})
    if not isinstance(section, dict) or not all(isinstance(each, dict) for each in section.values()):
        raise AccessError(f"{name} is not a table of tables: write [{name}.NAME]")
    if len(section) > most:
        raise AccessError(f"the document has {len(section)} {name}, more than {most}")
    return section


_ROLE_KEYS = tuple(each.name for each in fields(Role) if each.name != "name")
_USER_KEYS = tuple(each.name for each in fields(User) if each.name != "name")


def _role(name: str, given: dict[str, Any]) -> Role:
    where = f"roles.{name}"
    _only_keys(given, _ROLE_KEYS, where)
    deny = given.get("deny", {})
    if not isinstance(deny, dict):
        raise AccessError(f"{where}.deny is not a table: write [{where}.deny]")
    _only_keys(deny, DENIABLE, f"{where}.deny")
    return Role(
        name=name,
        publish=_patterns(given, "publish", where),
        subscribe=_patterns(given, "subscribe", where),
        declare=_patterns(given, "declare", where),
        durable=_names(given, "durable", where),
        publisher=_names(given, "publisher", where),
        monitor=_flag(given, "monitor", where),
        administer=_flag(given, "administer", where),
        pipeline=_flag(given, "pipeline", where),
        read=_rules(given, "read", where),
        write=_rules(given, "write", where),
        restrict=_rules(given, "restrict", where),
        hide=_hidden(given, where),
        quota=_quota(given, where),
        deny=MappingProxyType({kind: _patterns(deny, kind, f"{where}.deny") for kind in deny}),
    )


def _user(name: str, given: dict[str, Any], roles: Mapping[str, Role]) -> User:
    where = f"users.{name}"
    check_name(name)
    _only_keys(given, _USER_KEYS, where)
    has = _texts(given, "roles", where)
    for role in has:
        if role not in roles:
            raise AccessError(f"{where} has the role {role!r}, and there is no [roles.{role}]")
    claims = given.get("claims", {})
    if not isinstance(claims, dict):
        raise AccessError(f"{where}.claims is not a table")
    if len(check_claims(claims)) != len(claims):
        raise AccessError(f"{where}.claims: a claim is a text, a number, true or false")
    password = given.get("password")
    if password is not None and not isinstance(password, str):
        raise AccessError(f"{where}.password is not a text: `tidemark access password` makes one")
    try:
        verifier = None if password is None else Verifier.parse(password)
    except AccessError as error:
        raise AccessError(f"{where}.password: {error}") from None
    return User(name, has, MappingProxyType(check_claims(claims)), verifier)


def _flag(given: Mapping[str, Any], key: str, where: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise AccessError(f"{where}.{key} is true or false, not {value!r}")
    return value


def _texts(given: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = given.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise AccessError(f'{where}.{key} is not a list of texts: write {key} = ["..."]')
    if len(value) > ENTRIES_MAX:
        raise AccessError(f"{where}.{key} has {len(value)} entries, more than {ENTRIES_MAX}")
    return tuple(value)


def _patterns(given: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = _texts(given, key, where)
    for text in found:
        _check_pattern(text, f"{where}.{key}")
    return found


def _check_pattern(text: str, where: str) -> None:
    filled = text
    for parameter in parameters_of_name(text):
        filled = filled.replace(f"{{{parameter}}}", "x")
    try:
        TopicPattern.parse(filled)
    except TidemarkError as error:
        raise AccessError(f"{where}: {error}") from None


def _names(given: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = _texts(given, key, where)
    for text in found:
        parameters_of_name(text)
        if text.count("*") > WILDCARDS_MAX:
            raise AccessError(f"{where}.{key}: {text!r} has more than {WILDCARDS_MAX} `*`")
    return found


def _rules(given: Mapping[str, Any], key: str, where: str) -> Rules:
    value = given.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise AccessError(f'{where}.{key} is not a table of selectors: write {key}."PATTERN" = "SELECTOR"')
    if len(value) > ENTRIES_MAX:
        raise AccessError(f"{where}.{key} has {len(value)} entries, more than {ENTRIES_MAX}")
    for pattern, rule in value.items():
        _check_pattern(pattern, f"{where}.{key}")
        _check_rule(rule, f'{where}.{key}."{pattern}"')
    return MappingProxyType(dict(value))


def _hidden(given: Mapping[str, Any], where: str) -> Mapping[str, tuple[str, ...]]:
    value = given.get("hide", {})
    if not isinstance(value, dict):
        raise AccessError(f'{where}.hide is not a table of fields: write hide."PATTERN" = ["FIELD"]')
    if len(value) > ENTRIES_MAX:
        raise AccessError(f"{where}.hide has {len(value)} entries, more than {ENTRIES_MAX}")
    for pattern in value:
        _check_pattern(pattern, f"{where}.hide")
        for name in _texts(value, pattern, f"{where}.hide"):
            _check_hidden(name, f'{where}.hide."{pattern}"')
    return MappingProxyType({pattern: tuple(names) for pattern, names in value.items()})


def _check_hidden(name: str, where: str) -> None:
    if not 0 < len(name.encode(errors="surrogatepass")) <= NAME_BYTES_MAX:
        raise AccessError(f"{where}: the name of a field has 1 to {NAME_BYTES_MAX} bytes")
    if name.startswith("_"):
        raise AccessError(f"{where}: {name!r} is a header, or a field without a name, and cannot be hidden")
    if "." in name:
        raise AccessError(f"{where}: {name!r} is inside a field: hide the whole field {name.split('.')[0]!r}")


def _quota(given: Mapping[str, Any], where: str) -> Mapping[str, int]:
    value = given.get("quota", {})
    if not isinstance(value, dict):
        raise AccessError(f"{where}.quota is not a table: write quota.subscriptions = 10")
    _only_keys(value, QUOTAS, f"{where}.quota")
    for name, most in value.items():
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= QUOTA_MAX:
            raise AccessError(f"{where}.quota.{name} is a number from 1 to {QUOTA_MAX}, not {most!r}")
    return MappingProxyType(dict(value))


def _check_rule(rule: str, where: str) -> None:
    if len(rule) > RULE_CHARACTERS_MAX:
        raise AccessError(f"{where} has {len(rule)} characters, more than {RULE_CHARACTERS_MAX}")
    try:
        needed = parameters_of_rule(rule)
        parse(rule_for(rule, Principal("x", _samples(needed))) or "")
    except TidemarkError as error:
        raise AccessError(f"{where}: {error}") from None


def _samples(parameters: set[str]) -> dict[str, Claim]:
    """Return a value for each claim, with which the grammar of a rule can be checked."""
    return {each.removeprefix("claims."): "x" for each in parameters if each != "user"}


def rules_of(document: AccessDocument) -> Iterator[tuple[str, str, str]]:
    """Yield every rule of the document: where it stands, its topic pattern, and its selector."""
    for role in document.roles.values():
        for key in ("read", "write", "restrict"):
            for pattern, rule in getattr(role, key).items():
                yield f'roles.{role.name}.{key}."{pattern}"', pattern, rule
