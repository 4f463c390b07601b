"""Introduction: the first frames of a connection, until the other side has said and proved who it is.

Connect comes from a client, Resume from a client that was away, Hello from a broker. Where there are accounts
a client logs in before it is welcome. Brokers prove who they are before anything else that they say counts,
with the names in their certificates or with the key of the overlay. Nothing but what is named here is heard
meanwhile, in small frames and for a short time.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING
from weakref import ref

from tidemark.broker.effects import ClientCame
from tidemark.errors import VersionError
from tidemark.node.logs import Log
from tidemark.node.security.link_proof import LinkProving
from tidemark.node.security.login import LoggedIn, LoginAttempt, LoginError
from tidemark.node.security.tls import is_broker, name_in
from tidemark.wire.frames import Connect, Frame, Hello, Overlay, Refused, Resume, Welcome
from tidemark.wire.security.frames import Challenge, LinkProof, Login, Proof
from tidemark.wire.versions import agree, agree_link

if TYPE_CHECKING:
    from tidemark.node.connection import Connection
    from tidemark.node.server import Server

#: The oldest version of the protocol in which a client can log in.
LOGIN_VERSION = 4
log = Log("connection")


class Introduction:
    """The beginning of one connection, which owns it. `_with` is that connection."""

    __slots__ = ("_attempt", "_connection", "_proof", "_security", "_server", "_version")

    def __init__(self, connection: Connection, server: Server) -> None:
        #: weak, so that a connection that is closed is freed at once: who guesses passwords leaves thousands
        self._connection = ref(connection)
        self._server = server
        self._security = server.security
        #: what a client still has to prove before it is welcome
        self._attempt: LoginAttempt | None = None
        #: what the broker at the other end has proved
        self._proof = LinkProving(server.security.link_key, is_caller=connection.expected is not None)
        #: the version of the protocol that a client speaks
        self._version = 0

    @property
    def _with(self) -> Connection:
        connection = self._connection()
        assert connection is not None, "only the connection itself calls this"
        return connection

    def hear(self, frame: Frame) -> bool:
        """Hear one of the first frames of the connection; what is none of them is refused.

        Returns whether the other side has said and proved who it is; a broker may still be no neighbour.
        """
        self._hear(frame)
        hello = self._with.hello
        return self._with.is_known or (hello is not None and self._is_trusted(hello.broker))

    @property
    def is_of_trusted_broker(self) -> bool:
        """Whether a broker is at the other end, and has proved who it is where that is asked.

        Before its Hello it may say which topology it has: one of the two may not know the other yet.
        """
        return bool(self._other) and self._is_trusted(self._other)

    def _is_trusted(self, broker: str) -> bool:
        """Return whether it is proved that `broker` is at the other end, or need not be."""
        if not self._security.proves_links or self._proof.is_proved:
            return True
        return is_broker(self._with.certificate, broker)

    @property
    def _other(self) -> str:
        """The name of the broker at the other end: the one that was called, or the one that it says."""
        hello = self._with.hello
        return self._with.expected or (hello.broker if hello is not None else "")

    def _hear(self, frame: Frame) -> None:
        link, is_broker_there = self._with, bool(self._other)
        match frame:
            case Connect(name, oldest, newest) if not link.is_called and not is_broker_there:
                self._connect(name, oldest, newest)
            case Proof() if self._attempt is not None:
                self._prove(frame)
            case Resume() if not is_broker_there:
                self._resume(frame)
            case Hello() if link.calling is None and self._attempt is None:
                self._meet(frame)
            case Challenge(nonce) if is_broker_there:
                self._challenged(nonce)
            case LinkProof(proof) if is_broker_there:
                self._proved(proof)
            case Overlay() if self.is_of_trusted_broker:
                self._server.told_overlay(link, frame)
            case Refused(reason=reason):
                log.warning("refused by the other side", address=link.address, reason=reason)
                if link.calling is not None:
                    self._server.leases.refused(link.calling)
                link.close()
            case _:
                link.refuse("frame", "say who you are first, with Connect or Hello")

    # Clients.

    def _connect(self, name: str, oldest: int, newest: int) -> None:
        """A client introduces itself. Where there are accounts it has to prove who it is."""
        try:
            self._version = agree(oldest, newest)
        except VersionError as error:
            self._with.refuse("version", str(error))
            return
        self._with.name = name
        accounts = self._security.accounts
        if accounts is None:
            self._welcome()
        elif user := name_in(self._with.certificate, self._security.certificate_name):
            # A certificate cannot be guessed: those who guess passwords keep nobody out who has one.
            try:
                self._logged_in(accounts.certified(user))
            except LoginError as error:
                self._failed(error)
        elif self._server.login_limits.refuses_all(self._with.address):
            self._failed(LoginError("too many failures"))
        elif self._version < LOGIN_VERSION:
            reason = "this broker has accounts, and this client is too old to log in: update it"
            self._with.refuse("login", reason)
        else:
            self._attempt = LoginAttempt(accounts)
            self._with.write(Login(accounts.mechanisms))

    def _prove(self, proof: Proof) -> None:
        """A client goes on with its login."""
        assert self._attempt is not None
        try:
            found = self._attempt.step(proof)
            self._check_limits(found, self._attempt.who)
        except LoginError as error:
            self._failed(error)
            return
        if isinstance(found, Login):
            self._with.write(found)
        else:
            self._logged_in(found)

    def _check_limits(self, found: Login | LoggedIn, name: str) -> None:
        """Raise LoginError if a password was right that is not tried now; tokens cannot be guessed."""
        is_guess = isinstance(found, LoggedIn) and found.how == "password"
        if is_guess and self._server.login_limits.refuses(self._with.address, name):
            raise LoginError("too many failures", name)

    def _logged_in(self, found: LoggedIn) -> None:
        self._attempt = None
        link = self._with
        self._server.login_limits.succeeded(link.address, found.principal.name)
        link.principal, link.expires_at = found.principal, found.expires_at
        if found.last is not None:
            link.write(found.last)
        if self._welcome():
            self._audit("login", who=found.principal.name, how=found.how)
        else:
            reason = "it has as many connections as quota.connections of its roles allows"
            self._audit(
                "over limit", who=found.principal.name, how=found.how, request="connect", reason=reason
            )

    def _failed(self, error: LoginError) -> None:
        """Refuse a client that could not prove who it is, in the same words whatever was wrong."""
        link, limits = self._with, self._server.login_limits
        limits.failed(link.address, error.who)
        self._server.logins_failed += 1
        self._audit("login failed", who=error.who, cause=error.cause)
        seconds = limits.seconds_to_wait(link.address, error.who)
        advice = f"; wait {ceil(seconds)} s and try again" if seconds else ""
        link.refuse("login", f"{error}{advice}")

    def prove_anew(self, proof: Proof) -> None:
        """A client that is logged in brings a newer bearer token, which must be of the same user."""
        link, accounts = self._with, self._security.accounts
        try:
            if accounts is None or link.principal is None or link.client is None:
                raise LoginError("nobody is logged in")
            found = LoginAttempt(accounts).step(proof)
            if not isinstance(found, LoggedIn):
                raise LoginError("only a bearer token is brought anew", link.principal.name)
            if found.principal.name != link.principal.name:
                raise LoginError("the token is of another user", found.principal.name)
        except LoginError as error:
            self._failed(error)
            return
        link.expires_at = found.expires_at
        self._audit("login renewed", who=found.principal.name, how=found.how)
        if found.principal != link.principal:
            link.principal = found.principal
            self._server.runtime.give((ClientCame(link.client, found.principal),))

    def _welcome(self) -> bool:
        """Let a client in; return whether it may stay."""
        link, server = self._with, self._server
        link.speak(self._version)
        link.client = server.runtime.client_came(link, link.principal, link.origin)
        if link.client not in server.runtime.clients:
            return False  # it has more connections than its quota
        server.introduced(link)
        link.write(Welcome(server.name, server.incarnation, self._version, server.pubends))
        return True

    def _resume(self, frame: Resume) -> None:
        """A client that was parked returns, with the ticket that only it was told."""
        link, server = self._with, self._server
        try:
            version = agree(frame.oldest, frame.newest)
        except VersionError as error:
            link.refuse("version", str(error))
            return
        holder = server.leases.claim(link, frame.ticket)
        if holder is None:
            self._audit("login failed", cause="the ticket is of no client that is away")
            link.refuse("unknown", "there is no such lease, or not any more: connect and subscribe again")
            return
        link.speak(version)
        link.name, link.client, link.lease, link.calling = holder.name, holder.client, holder, None
        link.principal = holder.principal
        if link.principal is not None:
            self._audit("login", who=link.principal.name, how="ticket")
        server.introduced(link)
        link.write(Welcome(server.name, server.incarnation, version, server.pubends))
        server.leases.arrived(holder, link)

    # Brokers.

    def _meet(self, hello: Hello) -> None:
        """A broker introduces itself. Before anything else it has to prove who it is, where that is asked."""
        link = self._with
        try:
            link.speak_link(agree_link(hello.oldest, hello.newest, self._server.hello.newest))
        except VersionError as error:
            link.refuse("version", str(error))
            return
        link.hello = hello
        if link.expected not in (None, hello.broker):
            link.refuse_stranger()
        elif self._is_trusted(hello.broker):
            self._link(hello)
        elif link.expected is not None or not self._proof.has_key:
            self._strange("the broker has not proved who it is")
        else:
            link.write(Challenge(self._proof.nonce))

    def _challenged(self, nonce: str) -> None:
        """The other broker asks for a proof. The one that has called answers, and asks for one in turn."""
        link = self._with
        if not self._proof.has_key:
            self._strange("this broker has no key of the overlay: set security.overlay_key")
            return
        self._proof.challenged(nonce)
        if link.expected is not None:
            link.write(Challenge(self._proof.nonce))
            link.write(LinkProof(self._proof.proof(self._server.name, self._other)))

    def _proved(self, proof: str) -> None:
        """The other broker answers a challenge. The one that was called proves itself only then."""
        link, hello = self._with, self._with.hello
        if not self._proof.check(proof, self._other, self._server.name):
            self._strange("the broker does not have the key of the overlay")
            return
        if link.expected is None:
            link.write(LinkProof(self._proof.proof(self._server.name, self._other)))
        if hello is not None:
            self._link(hello)

    def _strange(self, reason: str) -> None:
        self._server.logins_failed += 1
        self._audit("link refused", who=self._other, cause=reason)
        self._with.refuse("login", reason)

    def _link(self, hello: Hello) -> None:
        """Open the link to the broker that has proved its name. Only this method tells the runtime LinkUp."""
        link, server = self._with, self._server
        if hello.broker in server.neighbours:
            seconds = server.refused_neighbours.seconds_left(hello.broker)
            if seconds:
                link.refuse("limit", f"what you said was refused: come again in {seconds:.1f} s")
                return
            link.peer = hello.broker
            self._audit("link", who=hello.broker, how=self._how(hello.broker))
            link.bound_link()
            server.introduced(link)
            server.runtime.link_up(hello.broker, link, hello)
        if link.expected is None or self._security.proves_links:
            link.write(server.membership.greeting())
        if server.access is not None and link.peer is not None:
            link.write(server.access.greeting())

    def _how(self, broker: str) -> str:
        """Return how the broker at the other end has proved its name."""
        if is_broker(self._with.certificate, broker):
            return "certificate"
        return "key" if self._proof.is_proved else "not asked for a proof"

    def _audit(self, what: str, **fields: object) -> None:
        self._security.audit.write(what, address=self._with.address, client=self._with.name, **fields)
