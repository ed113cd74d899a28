"""Who calls, and whether it may: every call goes through `Access.caller`, and asks the caller before it acts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
import msgspec

from clientmgr.base.errors import SettingsError
from clientmgr.base.logs import get_logger
from clientmgr.broker.gateway.configuration import SubscriptionRow
from clientmgr.broker.gateway.identities import ANONYMOUS, Identities, Identity, Patterns, digest_of
from clientmgr.broker.gateway.names import Names
from clientmgr.broker.gateway.refusals import Refusal, denied, unauthenticated
from clientmgr.broker.interface import Message
from clientmgr.contracts import publishers, topics

log = get_logger(__name__)

_BEARER: Final = "bearer "
_CERTIFICATE_NAMES: Final = ("x509_subject_alternative_name", "x509_common_name")


class Tenanted(Protocol):
    """A subscription or a snapshot."""

    @property
    def name(self) -> str: ...

    @property
    def tenants(self) -> list[str] | None:
        """None: of all."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One call's. Each look at `identity` sees what the identities file says at that moment."""

    access: "Access"
    client: str
    """Whose bytes in flight are counted together: an identity's, or a connection's where there are none."""
    token_digest: str = ""
    certificate_names: tuple[str, ...] = ()

    @property
    def identity(self) -> Identity:
        """UNAUTHENTICATED: it is not, or no longer, in the file, or its token has expired."""
        identities = self.access.identities
        if identities is None:
            return ANONYMOUS
        try:
            if self.token_digest:
                found = identities.of_token(self.token_digest)
            else:
                found = identities.of_certificate(self.certificate_names)
        except SettingsError as error:
            log.error("nobody is let in while the identities can't be read", error=str(error))
            reason = "The gateway can't read its identities; its log says why."
            raise Refusal(grpc.StatusCode.UNAVAILABLE, reason) from None
        if found is None:
            raise unauthenticated("Nobody has this token or certificate, or it has expired.")
        return found

    @property
    def is_limited(self) -> bool:
        """To some customers."""
        return self.identity.tenants is not None

    def stamp(self, log_topic: str) -> dict[str, str]:
        """The attributes that say who published, for topics whose messages are acted on in the publisher's name."""
        identity = self.identity
        return {} if identity is ANONYMOUS else publishers.stamp(log_topic, identity.actor)

    def ensure_may_publish(self, topic: str) -> None:
        identity = self.identity
        log_topic = self.access.names.log_topic(topic)
        if log_topic == topics.ACCOUNT_DELETION:
            if not identity.account_deletion:
                raise denied(identity.name, "account_deletion", topic)
        elif not identity.publish.cover(log_topic):
            raise denied(identity.name, "publish", topic)

    def ensure_may_publish_about(self, messages: Sequence[Message]) -> None:
        """Refuse messages about customers that are not the caller's."""
        identity = self.identity
        if identity.tenants is None:
            return
        for message in messages:
            about = tenants_of(message.tenant, message.data)
            if not about <= identity.tenants or not about:
                whom = ", ".join(sorted(about - identity.tenants)) or "a customer that can't be told"
                raise denied(identity.name, "tenants", f"a message about {whom}")

    def ensure_may_read(self, subscription: SubscriptionRow) -> None:
        identity = self.identity
        self._ensure(identity, "subscribe", identity.subscribe, subscription.name)
        self._ensure_own_tenants(identity, subscription)

    def ensure_may_settle(self, subscription: str) -> None:
        """For acknowledgements and deadlines, which show no message. Not enough for a caller that `is_limited`."""
        identity = self.identity
        self._ensure(identity, "subscribe", identity.subscribe, subscription)

    def ensure_may_attach(self, topic: str) -> None:
        identity = self.identity
        log_topic = self.access.names.log_topic(topic)
        if not identity.attach.cover(log_topic) and not identity.admin.cover(log_topic):
            raise denied(identity.name, "attach", topic)

    def ensure_may_administer(self, name: str) -> None:
        identity = self.identity
        self._ensure(identity, "admin", identity.admin, name)

    def ensure_may_change(self, resource: Tenanted) -> None:
        """Change, delete, seek or keep the state of what exists."""
        identity = self.identity
        self._ensure(identity, "admin", identity.admin, resource.name)
        self._ensure_own_tenants(identity, resource)

    def ensure_may_see_topic(self, topic: str) -> None:
        if not self.sees_topic(topic):
            raise denied(self.identity.name, "publish, attach or admin", topic)

    def sees_topic(self, topic: str) -> bool:
        identity = self.identity
        name = self.access.names.log_topic(topic)
        return (
            identity.publish.cover(name)
            or identity.attach.cover(name)
            or identity.admin.cover(name)
            or (name == topics.ACCOUNT_DELETION and identity.account_deletion)
        )

    def ensure_may_see_subscription(self, name: str) -> None:
        if not self.sees_subscription(name):
            raise denied(self.identity.name, "subscribe or admin", name)

    def sees_subscription(self, name: str) -> bool:
        identity = self.identity
        short = self.access.names.short(name)
        return identity.subscribe.cover(short) or identity.admin.cover(short)

    def _ensure(self, identity: Identity, right: str, patterns: Patterns, name: str) -> None:
        if not patterns.cover(self.access.names.short(name)):
            raise denied(identity.name, right, name)

    def _ensure_own_tenants(self, identity: Identity, resource: Tenanted) -> None:
        mine = identity.tenants
        if mine is not None and (resource.tenants is None or not mine.issuperset(resource.tenants)):
            raise denied(identity.name, "tenants", f"{resource.name}, which has messages of other customers too")


@dataclass(frozen=True, slots=True)
class Access:
    """How the gateway tells its callers apart. Without identities everybody is ANONYMOUS."""

    identities: Identities | None
    names: Names
    certificates: bool = False
    """Whether clients show certificates, which TLS has verified."""

    def caller(self, context: Any) -> Caller:
        """By the call's metadata and its connection, before anything of its body is taken. Or UNAUTHENTICATED."""
        if self.identities is None:
            return Caller(self, context.peer())
        tokens = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        if tokens:
            if len(tokens) > 1 or not tokens[0].lower().startswith(_BEARER):
                raise unauthenticated("Expected one `authorization: Bearer …`.")
            caller = Caller(self, "", token_digest=digest_of(tokens[0][len(_BEARER) :].strip()))
        elif self.certificates:
            caller = Caller(self, "", certificate_names=_certificate_names(context))
        else:
            raise unauthenticated("Expected a token as `authorization: Bearer …`.")
        return Caller(self, caller.identity.name, caller.token_digest, caller.certificate_names)


def _certificate_names(context: Any) -> tuple[str, ...]:
    known = context.auth_context()
    return tuple(dict.fromkeys(name.decode() for key in _CERTIFICATE_NAMES for name in known.get(key, ())))


class _WithCustomer(msgspec.Struct):
    customer_id: int | str = msgspec.field(name="customerId", default="")


_DECODER = msgspec.json.Decoder(_WithCustomer)


def tenants_of(ordering_key: str, data: bytes) -> set[str]:
    """The customers that a message is about, by its ordering key and by its JSON. Empty: it can't be told."""
    try:
        in_data = str(_DECODER.decode(data).customer_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return set()
    return {name for name in (ordering_key, in_data) if name}
