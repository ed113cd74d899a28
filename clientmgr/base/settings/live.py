"""Live positions: the broadcast and the durable writer."""

from typing import Literal

from pydantic import Field, SecretStr

from clientmgr.base.settings.kinds import Port, StrongKey, TilesUrl


class LiveBroadcast:
    """Live broadcast"""

    instance_id: str = Field(
        "",
        max_length=100,
        description="Names a broadcast instance or durable writer; two of one name halve each other's stream. "
        "Empty: a new, unique one at each start.",
    )
    redis_telemetry_stream: str = Field(
        "telemetry:teltonika", min_length=1, description="Redis stream that devices' positions come from."
    )
    live_ws_host: str = Field(
        "127.0.0.1",
        description="Address of the live WebSocket and its page. One that others can reach needs LIVE_AUTH=on.",
    )
    live_ws_port: Port = Field(8787, description="Port of the live WebSocket and its page. 0: a free one.")
    live_auth: Literal["on", "off"] = Field(
        "on",
        description="off: everybody may see every event without a token. For a demo, on a loopback address only.",
    )
    live_token_key: StrongKey = Field(
        SecretStr(""), description="Key that live tokens are signed with. Empty: made and kept in DATA_DIR."
    )
    live_allowed_origins: str = Field(
        "",
        description="Web origins, by comma, whose pages may connect besides our own page's; * allows all of them.",
    )
    live_tiles_url: TilesUrl = Field(
        "",
        description="Where the map's raster tiles come from, like https://host/{z}/{x}/{y}.png. Every viewer's browser "
        "asks that host. Empty: a plain grid, and nobody is asked.",
    )
    live_tiles_attribution: str = Field(
        "", max_length=200, description="Whose map it is, as the tiles' owner wants it said on it."
    )
    live_trusted_proxies: str = Field(
        "",
        description="Addresses and networks, by comma, of proxies in front of the live WebSocket. "
        "Their X-Forwarded-For says whose connection it is.",
    )
    live_broadcast_group_prefix: str = Field(
        "live-broadcast", min_length=1, description="Consumer groups of broadcast instances are named PREFIX-INSTANCE."
    )
    live_broadcast_batch_size: int = Field(
        100, ge=1, le=10_000, description="Records that a broadcast instance reads at a time."
    )
    live_broadcast_batch_block_ms: int = Field(
        1000,
        ge=1,
        le=30_000,  # neighbours take an instance that asks for nothing in a minute for dead
        description="Longest wait of one read when the stream is quiet.",
    )
    live_broadcast_tick_ms: int = Field(
        0,
        ge=0,
        le=1000,
        description="Pause for this long after a batch that was not full: less CPU, more lag. 0: no pause.",
    )
    live_io_uring: bool = Field(
        True, description="Send to many connections by one system call, where Linux has io_uring and lets us use it."
    )
    live_device_event_refresh_ms: int = Field(
        30_000,
        ge=100,
        description="How often the map of devices to events is read anew; at once when told of a change.",
    )
    live_ws_backpressure_threshold_bytes: int = Field(
        1_048_576, ge=1024, description="A connection with more unsent bytes than this is closed with 1008."
    )
    live_ws_stall_timeout_ms: int = Field(
        10_000,
        ge=100,
        description="A connection that takes nothing for this long while data waits is closed with 1008.",
    )
    live_ws_ping_interval_ms: int = Field(
        20_000,
        ge=100,
        description="A connection silent for this long is pinged; without an answer for as long again it is cut off.",
    )
    live_ws_max_connections: int = Field(
        10_000, ge=1, description="Connections at once that have shown a token; further ones get 1013."
    )
    live_ws_max_connections_per_address: int = Field(
        1000, ge=1, description="Of these, connections of one client address; further ones get 1013."
    )
    live_ws_max_unauthenticated: int = Field(
        200,
        ge=1,
        description="Connections at once that have not shown a token yet, plain HTTP too. "
        "A further one takes the place of the oldest.",
    )
    live_ws_max_unauthenticated_per_address: int = Field(
        50,
        ge=1,
        description="Of these, connections of one client address. A further one takes the place of its oldest.",
    )
    live_ws_token_within_ms: int = Field(
        5000,
        ge=100,
        description="A connection that has not sent a request and shown its token within this time is closed.",
    )
    live_ws_max_messages_per_s: float = Field(
        50.0,
        gt=0,
        description="WebSocket frames that one connection may send a second in the long run, pings too. "
        "Who exceeds it is closed with 1008.",
    )
    live_ws_message_burst: int = Field(
        200, ge=1, description="Frames that one connection may send at once after a while of silence."
    )
    live_ws_max_subscriptions: int = Field(100, ge=1, description="Topics that one connection may subscribe to.")
    live_ws_max_frame_bytes: int = Field(4096, ge=128, le=65_536, description="Largest message that a client may send.")
    live_max_record_bytes: int = Field(
        65_536,
        ge=1024,
        le=1_048_576,
        description="Largest record of the telemetry stream. The broadcast drops a larger one, the durable writer "
        "parks it.",
    )
    live_history_s: float = Field(
        60.0,
        ge=0,
        le=3600,
        description="How long positions are kept in memory for clients that come back and ask for what they missed.",
    )
    live_history_bytes: int = Field(
        16_777_216, ge=0, description="Memory that these positions may take; the oldest go first."
    )
    live_topics_warning: int = Field(
        10_000, ge=1, description="Warn when there are more topics than this: events are fewer, as a rule."
    )
    telemetry_batch_size: int = Field(
        500, ge=1, le=10_000, description="Positions that the durable writer takes at a time."
    )
    telemetry_claim_idle_ms: int = Field(
        30_000, ge=100, description="Positions that a writer has held for longer than this are taken over by another."
    )
    telemetry_retention_days: int = Field(30, ge=0, description="How long positions are kept. 0: for ever.")
    telemetry_stream_keep_s: float = Field(
        300.0, ge=0, description="How long a durable position stays in the stream before it is trimmed."
    )
