"""`SyncBroker`: the log for programs without asyncio. The broker's event loop runs in a thread of its own; handlers run
in threads of theirs, one for each batch in hand.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from psycopg import AsyncConnection, Connection

from clientmgr.broker.interface import Batch, ConsumerOptions, ConsumeStats, Handler, Message, Outcome, ReceivedMessage
from clientmgr.broker.library.log_broker import KEEP_HOURS, LogBroker
from clientmgr.broker.library.sync_connections import AsIfAsync, LentConnection, run_through
from clientmgr.broker.settling import HandlerEndedError

T = TypeVar("T")

LOOK_FOR_STOP_S = 0.1
LOOK_FOR_END_OF_STATEMENT_S = 0.01


class SyncBatch:
    """`Batch` for a plain handler."""

    def __init__(self, batch: Batch, connection: Connection[Any]) -> None:
        self._batch = batch
        self.connection = connection
        """Inside the batch's transaction. The handler may use savepoints; it never commits or rolls back."""

    @property
    def subscription(self) -> str:
        return self._batch.subscription

    @property
    def messages(self) -> Sequence[ReceivedMessage]:
        return self._batch.messages

    def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Publish together with the batch: visible to others only when the batch is settled."""
        self._batch.publish(topic, messages)

    def forward(self, topic: str, message: ReceivedMessage, attributes: Mapping[str, str]) -> None:
        """`publish` for a message as it came, with these attributes in addition."""
        self._batch.forward(topic, message, attributes)


SyncHandler = Callable[[SyncBatch], Sequence[Outcome] | None]
"""As `Handler`, but plain. It runs in a thread of its own."""


class SyncBroker:
    """Open it with `with`. Any thread may call it."""

    def __init__(self, broker: LogBroker) -> None:
        self._broker = broker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        # psycopg needs a loop with a selector, which is not every system's own.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="clientmgr broker", daemon=True)
        self._thread.start()
        self._run(self._broker.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, thread = self._running_loop(), self._thread
        try:
            self._run(self._broker.__aexit__(kind, error, trace))
        finally:
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            if thread is not None:
                thread.join()
            loop.close()

    def migrate(self) -> list[str]:
        """Make the log's tables, or bring them to this release; the names of what was applied. Safe to repeat."""
        return self._run(self._broker.migrate())

    def trim(self, *, hours: float = KEEP_HOURS) -> int:
        """Delete messages older than `hours` that every subscription has passed; how many."""
        return self._run(self._broker.trim(hours=hours))

    def ensure_topic(self, topic: str) -> None:
        """Make the topic where it is missing."""
        self._run(self._broker.ensure_topic(topic))

    def ensure_subscription(self, subscription: str, topic: str, *, from_start: bool = True) -> None:
        """Make the subscription where it is missing; it reads from the log's beginning, or what comes from now on."""
        self._run(self._broker.ensure_subscription(subscription, topic, from_start=from_start))

    def publish(self, topic: str, messages: Sequence[Message], *, connection: Connection[Any] | None = None) -> None:
        """Publish all or nothing. Given a connection to the log's own database, as part of its transaction."""
        if connection is None:
            self._run(self._broker.publish(topic, messages))
        else:
            faced = cast("AsyncConnection[Any]", AsIfAsync(connection))
            run_through(self._broker.publish(topic, messages, connection=faced))

    def consume(
        self,
        subscription: str,
        handler: SyncHandler,
        *,
        options: ConsumerOptions | None = None,
        stop: threading.Event | None = None,
        burst: bool = False,
    ) -> ConsumeStats:
        """Hand batches to `handler` until `stop` is set, or, in burst mode, until nothing is left to deliver.

        On `stop`, and on an exception that a signal raises here, the batch in hand is finished first; a second one
        rolls it back.
        """
        loop, stopping = self._running_loop(), asyncio.Event()
        consuming = self._start(
            self._broker.consume(subscription, _in_threads(handler), options=options, stop=stopping, burst=burst)
        )
        try:
            return _result(consuming, stop or threading.Event(), lambda: loop.call_soon_threadsafe(stopping.set))
        finally:
            if not consuming.done():
                try:
                    loop.call_soon_threadsafe(stopping.set)
                    consuming.exception()
                finally:
                    consuming.cancel()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the broker is not open: use it as `with open_broker_sync(…) as broker:`")
        return self._loop

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except RuntimeError:
            work.close()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._start(work).result()


def _result(consuming: Future[T], stop: threading.Event, tell_it: Callable[[], object]) -> T:
    """What it comes to; tells it when `stop` is set."""
    while True:
        try:
            return consuming.result(LOOK_FOR_STOP_S)
        except TimeoutError:
            if consuming.done():  # the time-out is the work's own
                raise
            if stop.is_set():
                tell_it()


def _in_threads(handler: SyncHandler) -> Handler:
    """An asynchronous handler that runs `handler` in a new thread.

    New, not pooled: one that outlives its time limit then holds up nobody else.
    """

    async def handle(batch: Batch) -> Sequence[Outcome] | None:
        connection = LentConnection(batch.connection)
        answer = _in_thread(handler, SyncBatch(batch, connection))
        try:
            return await asyncio.shield(answer)
        finally:
            await _take_back(connection)

    return handle


def _in_thread(handler: SyncHandler, batch: SyncBatch) -> asyncio.Future[Sequence[Outcome] | None]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[Outcome] | None] = loop.create_future()
    # Nobody may be left to ask for it; asyncio would then print the error, and the error may quote a message.
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    def settle(outcomes: Sequence[Outcome] | None, error: BaseException | None) -> None:
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(outcomes)

    def run() -> None:
        outcomes, failure = None, None
        try:
            outcomes = contextvars.copy_context().run(handler, batch)
        except BaseException as error:  # noqa: BLE001  (whatever a handler throws is judged in one place)
            failure = error if isinstance(error, Exception) else HandlerEndedError(f"the handler ended with {error!r}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcomes, failure)

    threading.Thread(target=run, name=f"handler of {batch.subscription}", daemon=True).start()
    return answer


async def _take_back(connection: LentConnection) -> None:
    """After this the handler's thread, which may still run, can't touch the batch's session any more."""
    await connection.sign_of_life_is_given()
    if connection.try_to_take_back():
        return
    await asyncio.to_thread(connection.cancel_safe)
    while not connection.try_to_take_back():  # noqa: ASYNC110  (it is another thread that lets go)
        await asyncio.sleep(LOOK_FOR_END_OF_STATEMENT_S)
