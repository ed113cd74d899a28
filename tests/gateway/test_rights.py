"""What an identity may do, with Google's own clients: each right allowed and refused."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient

from clientmgr.base.database import Database
from clientmgr.base.private_files import write_private
from clientmgr.broker.gateway.rpc import _TYPES as CALLS
from clientmgr.contracts.topics import ACCOUNT_DELETION, ACTIVATE_CUSTOMER
from tests.gateway.conftest import PROJECT, Clients, RawStream
from tests.gateway.credentials import channel_with_token, clients_on, identities_file, token_of, write_identities
from tests.gateway.process import GatewayProcess

RIGHTS = {
    "boss": 'tenants = "all"\npublish = ["*"]\nsubscribe = ["*"]\nadmin = ["*"]',
    "officer": 'tenants = "all"\naccount_deletion = true',
    "writer": 'tenants = "all"\npublish = ["orders-*"]',
    "reader": 'tenants = "all"\nsubscribe = ["orders-*"]',
    "keeper": 'tenants = "all"\nadmin = ["orders-*"]',
    "acme": """tenants = [1001]
publish = ["orders-*"]
subscribe = ["acme-*"]
attach = ["orders-*"]
admin = ["acme-*"]""",
    "late": 'tenants = "all"\npublish = ["*"]',
    "nobody": 'tenants = "all"\npublish = ["nothing-of-this-name"]',
}
MOST_SUBSCRIPTIONS = 15
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
As = Callable[[str], Clients]


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identities_file(tmp_path_factory.mktemp("identities"), **RIGHTS)


@pytest.fixture(scope="module")
def guarded(
    gateway_database: Database, identities: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    log_file = tmp_path_factory.mktemp("guarded") / "gateway.log"
    process = GatewayProcess(
        gateway_database,
        log_file,
        pubsub_gateway_identities=identities,
        pubsub_gateway_max_subscriptions=MOST_SUBSCRIPTIONS,
    )
    process.start()
    yield process
    process.stop()


@pytest.fixture
def as_(guarded: GatewayProcess, identities: Path) -> Iterator[As]:
    write_identities(identities, **RIGHTS)
    channels: list[Any] = []

    def connect(name: str) -> Clients:
        channels.append(channel_with_token(guarded.address, token_of(name)))
        return clients_on(channels[-1])

    yield connect
    for channel in channels:
        channel.close()


def topic_path(name: str) -> str:
    return f"projects/{PROJECT}/topics/{name}"


def subscription_path(name: str) -> str:
    return f"projects/{PROJECT}/subscriptions/{name}"


@pytest.fixture
def orders(as_: As) -> tuple[str, str]:
    """A topic and a subscription on it."""
    suffix = uuid.uuid4().hex[:8]
    topic, subscription = topic_path(f"orders-{suffix}"), subscription_path(f"orders-{suffix}")
    boss = as_("boss")
    boss.publisher.create_topic(name=topic)
    boss.subscriber.create_subscription(name=subscription, topic=topic)
    return topic, subscription


def publish(clients: Clients, topic: str, body: object = "x", key: str = "", **attributes: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    message = {"data": data, "ordering_key": key, "attributes": attributes}
    PublisherClient.publish(clients.publisher, request={"topic": topic, "messages": [message]}, retry=None, timeout=20)


def denied(match: str) -> Any:
    return pytest.raises(exceptions.PermissionDenied, match=match)


def test_nobody_is_let_in_without_a_known_token(as_: As, orders: tuple[str, str]) -> None:
    for name in ("stranger", "", "boss "):
        with pytest.raises(exceptions.Unauthenticated):
            publish(as_(name), orders[0])
    stranger = as_("stranger")
    calls: list[Callable[[], object]] = [
        lambda: stranger.publisher.list_topics(project=f"projects/{PROJECT}", retry=None),
        lambda: stranger.subscriber.pull(subscription=orders[1], max_messages=1, retry=None),
        lambda: stranger.subscriber.seek(request={"subscription": orders[1], "time": LONG_AGO}, retry=None),
        lambda: RawStream(stranger, orders[1]).next(),
    ]
    for call in calls:
        with pytest.raises(exceptions.Unauthenticated):
            call()


def test_whoever_has_no_right_to_it_is_refused_each_call(
    guarded: GatewayProcess, as_: As, orders: tuple[str, str]
) -> None:
    """Every call that the gateway knows: one that forgets to ask what its caller may is found here."""
    topic, subscription = orders
    snapshot = f"projects/{PROJECT}/snapshots/kept-{uuid.uuid4().hex[:8]}"
    as_("boss").subscriber.create_snapshot(name=snapshot, subscription=subscription)
    label = {"labels": {"a": "b"}}, {"paths": ["labels"]}
    of_all = {"topic": topic, "subscription": subscription, "snapshot": snapshot, "project": f"projects/{PROJECT}"}
    requests: dict[str, dict[str, Any]] = {
        "CreateTopic": {"name": f"{topic}-new"},
        "UpdateTopic": {"topic": {"name": topic, **label[0]}, "update_mask": label[1]},
        "Publish": {"topic": topic, "messages": [{"data": b"x"}]},
        "CreateSubscription": {"name": f"{subscription}-new", "topic": topic},
        "UpdateSubscription": {"subscription": {"name": subscription, **label[0]}, "update_mask": label[1]},
        "ModifyAckDeadline": {"subscription": subscription, "ack_ids": ["1"], "ack_deadline_seconds": 30},
        "Acknowledge": {"subscription": subscription, "ack_ids": ["1"]},
        "Pull": {"subscription": subscription, "max_messages": 1},
        "Seek": {"subscription": subscription, "time": {"seconds": 1}},
        "CreateSnapshot": {"name": f"{snapshot}-new", "subscription": subscription},
        "UpdateSnapshot": {"snapshot": {"name": snapshot, **label[0]}, "update_mask": label[1]},
        "ListSchemas": {"parent": of_all["project"]},
    }
    answered: dict[str, object] = {}
    with contextlib.closing(channel_with_token(guarded.address, token_of("nobody"))) as channel:
        for call, (request_type, response_type) in CALLS.items():
            name = call.rpartition("/")[2]
            members = request_type.DESCRIPTOR.fields_by_name
            ask = channel.unary_unary(
                f"/{call}",
                request_serializer=request_type.SerializeToString,
                response_deserializer=response_type.FromString,
            )
            given = requests.get(name) or {key: value for key, value in of_all.items() if key in members}
            try:
                answered[name] = ask(request_type(**given), timeout=60).ListFields()
            except grpc.RpcError as refused:
                if refused.code() is not grpc.StatusCode.PERMISSION_DENIED:
                    answered[name] = refused.details()
    nothing_seen = ("ListTopics", "ListSubscriptions", "ListSnapshots", "ListSchemas")
    assert answered == {name: [] for name in nothing_seen}


def test_each_right_allows_its_own_calls_and_no_others(as_: As, orders: tuple[str, str]) -> None:
    topic, subscription = orders
    publish(as_("writer"), topic, "hello")
    (received,) = as_("reader").pull(subscription)
    as_("reader").set_deadline(subscription, 30, received)
    as_("reader").acknowledge(subscription, received)
    keeper: Any = as_("keeper").subscriber
    keeper.seek(request={"subscription": subscription, "time": LONG_AGO})

    for name in ("reader", "keeper", "officer"):
        with denied(f"{name} lacks the right: publish does not cover {topic}"):
            publish(as_(name), topic)
    reading: list[Callable[[Clients], object]] = [
        lambda other: other.pull(subscription),
        lambda other: other.acknowledge(subscription, received),
        lambda other: other.set_deadline(subscription, 0, received),
        lambda other: RawStream(other, subscription).next(),
    ]
    for name in ("writer", "keeper", "officer"):
        for call in reading:
            with denied(f"{name} lacks the right: subscribe does not cover {subscription}"):
                call(as_(name))
    managing: list[Callable[[Clients], object]] = [
        lambda other: other.publisher.create_topic(name=topic_path("orders-more"), retry=None),
        lambda other: other.publisher.delete_topic(topic=topic, retry=None),
        lambda other: other.subscriber.create_subscription(name=subscription_path("orders-2"), topic=topic, retry=None),
        lambda other: other.subscriber.delete_subscription(subscription=subscription, retry=None),
        lambda other: other.subscriber.seek(request={"subscription": subscription, "time": LONG_AGO}, retry=None),
    ]
    for name in ("writer", "reader", "officer"):
        for call in managing:
            with denied(f"{name} lacks the right: admin does not cover"):
                call(as_(name))


def test_rights_go_by_names_and_do_not_reach_other_projects(as_: As) -> None:
    with denied("publish does not cover"):
        publish(as_("writer"), topic_path("invoices"))
    with denied("publish does not cover"):
        publish(as_("boss"), "projects/elsewhere/topics/orders-1")
    with denied("admin does not cover"):
        as_("keeper").publisher.create_topic(name="projects/elsewhere/topics/orders-1", retry=None)
    with denied("subscribe does not cover"):
        elsewhere = {"subscription": "projects/elsewhere/subscriptions/orders-1", "max_messages": 1}
        as_("reader").subscriber.pull(elsewhere, retry=None)
    with denied("attach does not cover"):
        as_("keeper").subscriber.create_subscription(
            name=subscription_path("orders-spy"), topic=topic_path("client-manager.writer"), retry=None
        )


def test_lists_show_what_the_caller_may_see(as_: As, orders: tuple[str, str]) -> None:
    topic, subscription = orders
    as_("boss").publisher.create_topic(name=topic_path(f"secret-{uuid.uuid4().hex[:8]}"))
    project = f"projects/{PROJECT}"
    seen = [found.name for found in as_("writer").publisher.list_topics(project=project)]
    assert topic in seen
    assert all(name.startswith(topic_path("orders-")) for name in seen)
    assert list(as_("writer").subscriber.list_subscriptions(project=project)) == []
    assert list(as_("writer").publisher.list_topic_subscriptions(topic=topic)) == []
    assert subscription in {found.name for found in as_("reader").subscriber.list_subscriptions(project=project)}
    with denied("subscribe or admin"):
        as_("writer").subscriber.get_subscription(subscription=subscription, retry=None)


def test_account_deletion_wants_a_right_of_its_own(as_: As, gateway_database: Database) -> None:
    deletions = topic_path(ACCOUNT_DELETION)
    with contextlib.suppress(exceptions.AlreadyExists):
        as_("boss").publisher.create_topic(name=deletions)
    body = {"eventId": "d-1", "customerId": 7, "requestedBy": "Compliance Officer", "occurredAt": 1}
    with denied(f"boss lacks the right: account_deletion does not cover {deletions}"):
        publish(as_("boss"), deletions, body)
    publish(as_("officer"), deletions, body, source="test")
    with psycopg.connect(gateway_database.url) as connection:
        (attributes,) = connection.execute(
            "SELECT attributes FROM clientmgr.outbox_message_t AS m JOIN clientmgr.log_counter AS c "
            "ON c.id = m.topic_id WHERE c.topic = %s ORDER BY c_offset DESC LIMIT 1",
            (ACCOUNT_DELETION,),
        ).fetchone() or ({},)
    assert attributes == {"clientmgr-publisher": "pubsub:officer", "source": "test"}


def test_who_publishes_can_not_be_claimed(as_: As, orders: tuple[str, str]) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="clientmgr-publisher"):
        publish(as_("officer"), topic_path(ACCOUNT_DELETION), {}, **{"clientmgr-publisher": "cli:root"})


def test_dead_letters_are_no_way_around_a_right(as_: As, orders: tuple[str, str]) -> None:
    boss = as_("boss")
    for topic in (ACCOUNT_DELETION, ACTIVATE_CUSTOMER):
        policy = {"dead_letter_topic": topic_path(topic)}
        with pytest.raises(exceptions.InvalidArgument, match="takes no dead letters"):
            boss.subscriber.create_subscription(
                request={"name": subscription_path("orders-dead"), "topic": orders[0], "dead_letter_policy": policy}
            )
    with denied("publish does not cover"):
        as_("keeper").subscriber.create_subscription(
            request={
                "name": subscription_path("orders-dead"),
                "topic": orders[0],
                "dead_letter_policy": {"dead_letter_topic": topic_path("client-manager.writer")},
            },
            retry=None,
        )


def test_a_publisher_of_some_customers_publishes_about_no_others(as_: As, orders: tuple[str, str]) -> None:
    acme, topic = as_("acme"), orders[0]
    publish(acme, topic, {"customerId": 1001})
    publish(acme, topic, {"customerId": "1001"}, key="1001")
    publish(acme, topic, {"any": "thing"}, key="1001")
    for body, key in (
        ({"customerId": 1002}, ""),
        ({"customerId": 1002}, "1001"),
        ({"customerId": 1001}, "1002"),
        ({"customerId": [1001]}, "1001"),
        ({}, ""),
        (b"\xff", "1001"),
        ([1001], ""),
    ):
        with denied("acme lacks the right: tenants does not cover a message about"):
            publish(acme, topic, body, key=key)


def test_a_reader_of_some_customers_sees_no_others_not_even_by_seeking(as_: As, orders: tuple[str, str]) -> None:
    topic, everybodys = orders
    acme, boss = as_("acme"), as_("boss")
    own = subscription_path(f"acme-{uuid.uuid4().hex[:8]}")
    acme.subscriber.create_subscription(name=own, topic=topic)
    for body, key in (
        ({"customerId": 1002}, "1002"),
        ({"customerId": 1002}, ""),
        ({"customerId": 1002, "mislabelled": True}, "1001"),
        ({"customerId": 1001}, "1001"),
    ):
        publish(boss, topic, body, key=key)
    (received,) = acme.pull(own)
    assert json.loads(received.message.data) == {"customerId": 1001}
    acme.acknowledge(own, received)
    acme.subscriber.seek(request={"subscription": own, "time": LONG_AGO})
    assert acme.pull(own, wait_s=0.5) == []
    shared = subscription_path(f"acme-{uuid.uuid4().hex[:8]}")
    boss.subscriber.create_subscription(name=shared, topic=topic)
    publish(boss, topic, {"customerId": 1002}, key="1002")
    (foreign,) = boss.pull(shared)
    for call in (
        lambda: acme.pull(shared),
        lambda: RawStream(acme, shared).next(),
        lambda: acme.acknowledge(shared, foreign),
        lambda: acme.subscriber.seek(request={"subscription": shared, "time": LONG_AGO}, retry=None),
        lambda: acme.subscriber.delete_subscription(subscription=shared, retry=None),
    ):
        with denied("messages of other customers too"):
            call()
    assert everybodys


def test_snapshots_are_no_way_to_other_customers_messages(as_: As, orders: tuple[str, str]) -> None:
    topic, everybodys = orders
    acme, boss = as_("acme"), as_("boss")
    own = subscription_path(f"acme-{uuid.uuid4().hex[:8]}")
    acme.subscriber.create_subscription(name=own, topic=topic)
    publish(boss, topic, {"customerId": 1002}, key="1002")
    publish(boss, topic, {"customerId": 1001}, key="1001")
    boss.pull(everybodys)
    of_all = f"projects/{PROJECT}/snapshots/acme-{uuid.uuid4().hex[:8]}"
    of_acme = f"projects/{PROJECT}/snapshots/acme-{uuid.uuid4().hex[:8]}"
    boss.subscriber.create_snapshot(request={"name": of_all, "subscription": everybodys})
    acme.subscriber.create_snapshot(request={"name": of_acme, "subscription": own})
    with denied("messages of other customers too"):
        acme.subscriber.seek(request={"subscription": own, "snapshot": of_all}, retry=None)
    with denied("messages of other customers too"):
        acme.subscriber.delete_snapshot(request={"snapshot": of_all}, retry=None)
    for name in ("writer", "reader", "acme"):
        with denied("admin does not cover"):
            as_(name).subscriber.create_snapshot(
                request={"name": f"projects/{PROJECT}/snapshots/orders-1", "subscription": everybodys}, retry=None
            )
    with denied("admin does not cover"):
        acme.publisher.detach_subscription(request={"subscription": everybodys}, retry=None)
    # Nor by the hand of one who may: a subscription delivers its own customers' messages, wherever it is sent.
    boss.subscriber.seek(request={"subscription": own, "snapshot": of_all})
    assert [json.loads(one.message.data) for one in acme.pull(own)] == [{"customerId": 1001}]


def test_open_streams_and_waiting_pulls_end_when_the_token_is_taken_out(
    as_: As, orders: tuple[str, str], identities: Path
) -> None:
    topic, subscription = orders
    stream = RawStream(as_("reader"), subscription)
    publish(as_("writer"), topic, "before")
    assert stream.messages(1)
    write_identities(identities, **{name: rights for name, rights in RIGHTS.items() if name != "reader"})
    with pytest.raises(exceptions.Unauthenticated):
        stream.next()
    with pytest.raises(exceptions.Unauthenticated):
        as_("reader").pull(subscription)
    write_identities(identities, **RIGHTS | {"reader": 'tenants = "all"\nsubscribe = ["others"]'})
    with denied("subscribe does not cover"):
        as_("reader").pull(subscription)


def test_an_expired_token_is_none(as_: As, orders: tuple[str, str], identities: Path) -> None:
    text = identities.read_text()
    for expires, allowed in (("2001-01-01", False), ("2001-01-01T00:00:00Z", False), ("2999-01-01", True)):
        write_private(identities, text.replace('" }]', f'", expires = {expires} }}]'))
        if allowed:
            publish(as_("late"), orders[0])
        else:
            with pytest.raises(exceptions.Unauthenticated, match="expired"):
                publish(as_("late"), orders[0])


def test_while_the_file_can_not_be_read_nobody_is_let_in(as_: As, orders: tuple[str, str], identities: Path) -> None:
    whole = identities.read_text()
    for text, mode in (("[half", 0o600), (whole, 0o644)):
        identities.write_text(text)
        identities.chmod(mode)
        with pytest.raises(exceptions.ServiceUnavailable, match="identities"):
            publish(as_("boss"), orders[0])
        write_private(identities, whole)
        publish(as_("boss"), orders[0])
    identities.unlink()
    with pytest.raises(exceptions.ServiceUnavailable, match="identities"):
        publish(as_("boss"), orders[0])


def test_a_caller_makes_a_limited_number_of_subscriptions(as_: As, orders: tuple[str, str]) -> None:
    keeper = as_("keeper")

    def make() -> None:
        name = subscription_path(f"orders-{uuid.uuid4().hex[:8]}")
        keeper.subscriber.create_subscription(name=name, topic=orders[0], retry=None)

    for _ in range(MOST_SUBSCRIPTIONS):
        make()
    with pytest.raises(exceptions.ResourceExhausted, match="keeper has made 15 subscriptions; 15 are allowed"):
        make()
