"""Two instances under one name: each gets half the stream, and both say so."""

import functools

import pytest

from clientmgr.live.redis_stream import open_redis
from streaming.live.broadcast import reader
from streaming.live.broadcast.namesakes import Namesakes
from tests.live.serving import Served, serving, until
from tests.live.stream import Stream

pytestmark = pytest.mark.anyio


async def test_two_instances_under_one_name_are_both_unhealthy_until_one_has_gone(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "Namesakes", functools.partial(Namesakes, time_to_leave_ms=0))
    monkeypatch.setattr(reader, "LOOK_FOR_NAMESAKES_EVERY_S", 0.0)
    monkeypatch.setattr(reader, "SAVE_EVERY_S", 0.05)

    async def health(served: Served) -> tuple[int, str]:
        return (await served.get("/healthz"))[:2]

    async with serving(stream.settings, instance_id="twin") as one:
        async with serving(stream.settings, instance_id="twin") as other:
            for served in (one, other):

                async def complains(served: Served = served) -> bool:
                    status, text = await health(served)
                    return status == 503 and "twin" in text and "INSTANCE_ID" in text

                await until(complains, "it says that it has a namesake")

        async def well() -> bool:
            return await health(one) == (200, "ok")

        await until(well, "the one that is left is well")
        # The other one left, and took neither the group nor its consumer along.
        assert stream.groups() == {"live-broadcast-twin"}


async def test_who_stops_while_we_start_is_no_namesake(stream: Stream) -> None:
    async with open_redis(stream.settings) as client:
        old, new = (Namesakes(stream.name, "me") for _ in range(2))
        await old.look(client)
        for _ in range(3):
            await new.look(client)
            await old.look(client)
        assert not new.found
        late = Namesakes(stream.name, "me", time_to_leave_ms=0)
        await late.look(client)
        await until(lambda: _seen(late, old, client), "who goes on under our name is found")
        await old.leave(client)
        await new.leave(client)
        await late.look(client)
        assert not late.found


async def _seen(late: Namesakes, old: Namesakes, client: object) -> bool:
    await old.look(client)  # type: ignore[arg-type]
    await late.look(client)  # type: ignore[arg-type]
    return late.found
