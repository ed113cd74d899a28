"""What each right of a gateway identity opens: every check of the gateway's, asked with one right after the other."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from clientmgr.broker.gateway.callers import Access, Caller
from clientmgr.broker.gateway.configuration import SubscriptionRow
from clientmgr.broker.gateway.identities import EVERYTHING, Identities, Identity
from clientmgr.broker.gateway.names import Names
from clientmgr.broker.gateway.refusals import Refusal
from clientmgr.broker.interface import Message
from clientmgr.contracts import daemons, topics

PROJECT: Final = "project"
SUBSCRIPTION: Final = f"projects/{PROJECT}/subscriptions/any"
RIGHTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "publish": {"publish": EVERYTHING},
    "subscribe": {"subscribe": EVERYTHING},
    "attach": {"attach": EVERYTHING},
    "admin": {"admin": EVERYTHING},
    "account_deletion": {"account_deletion": True},
}
"""Each alone, for everything that it can be given for, and for all customers."""


class _Only:
    """The identities of a file that has one."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def of_token(self, _digest: str) -> Identity:
        return self._identity


def rows() -> list[tuple[str, ...]]:
    """What can be asked for, and with which right it is given."""
    asked: list[tuple[str, Callable[[Caller], None]]] = [
        *((f"publish to `{name}`", _publishing(name)) for name in _set_apart()),
        ("publish to any other topic", _publishing(topics.WRITER)),
        ("pull, acknowledge, extend deadlines", _reading(None)),
        ("make topics and subscriptions", lambda caller: caller.ensure_may_administer(SUBSCRIPTION)),
        ("attach a subscription to a topic", lambda caller: caller.ensure_may_attach(_topic(topics.WRITER))),
        ("change, delete and seek a subscription", lambda caller: caller.ensure_may_change(_subscription(None))),
        ("see a topic's configuration", lambda caller: caller.ensure_may_see_topic(_topic(topics.WRITER))),
        ("see a subscription's configuration", lambda caller: caller.ensure_may_see_subscription(SUBSCRIPTION)),
    ]
    found = [(what, *(_is_given(ask, right) for right in RIGHTS.values())) for what, ask in asked]
    limited: list[tuple[str, Callable[[Caller], None]]] = [
        ("publish about another customer than those of `tenants`", _publishing_about(b'{"customerId": 2}')),
        ("publish about a customer that can't be told, with `tenants`", _publishing_about(b"no JSON")),
        (
            "read a subscription of all customers, with `tenants`",
            _reading(None),
        ),
        ("read a subscription of its own customers, with `tenants`", _reading(["1"])),
    ]
    everything = {name: value for right in RIGHTS.values() for name, value in right.items()}
    with_tenants = [{**everything, "tenants": frozenset({"1"})}] * len(RIGHTS)
    return found + [(what, *(_is_given(ask, right) for right in with_tenants)) for what, ask in limited]


def _set_apart() -> list[str]:
    """Topics that `publish` for all topics does not cover."""
    published = {name for entry in daemons.ALL for process in entry.processes for name in process.publishes}
    read = {one.topic for entry in daemons.ALL for process in entry.processes for one in process.reads}
    named = {topics.ACTIVATE_CUSTOMER, topics.ACCOUNT_DELETION} | published | read
    return sorted(name for name in named if _is_given(_publishing(name), RIGHTS["publish"]) != "yes")


def _publishing(name: str) -> Callable[[Caller], None]:
    return lambda caller: caller.ensure_may_publish(_topic(name))


def _publishing_about(data: bytes) -> Callable[[Caller], None]:
    return lambda caller: caller.ensure_may_publish_about([Message(data)])


def _reading(tenants: list[str] | None) -> Callable[[Caller], None]:
    return lambda caller: caller.ensure_may_read(_subscription(tenants))


def _is_given(ask: Callable[[Caller], None], right: Mapping[str, Any]) -> str:
    identity = Identity("somebody", **{"tenants": None, **right})
    caller = Caller(Access(cast(Identities, _Only(identity)), Names(PROJECT)), "somebody", token_digest=identity.name)
    try:
        ask(caller)
    except Refusal:
        return "–"
    return "yes"


def _topic(name: str) -> str:
    return f"projects/{PROJECT}/topics/{name}"


def _subscription(tenants: list[str] | None) -> SubscriptionRow:
    return SubscriptionRow(1, SUBSCRIPTION, _topic(topics.WRITER), 1, {}, False, False, None, None, tenants)
