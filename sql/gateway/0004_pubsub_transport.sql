-- What our side of Pub/Sub remembers, whoever the server is: retries that wait, failures that nobody else counts, and
-- what the bridge has copied. It is written in the transaction in which a batch is handled.

-- Retries that wait for their time. Pub/Sub itself can't hold a message back without holding up its ordering key, and
-- not for longer than ten minutes; here it waits alone, acknowledged there.
CREATE TABLE clientmgr.pubsub_delayed (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription text NOT NULL,
    topic text NOT NULL,
    not_before timestamptz NOT NULL,
    message_id text NOT NULL,
    attempts integer NOT NULL, -- deliveries so far
    host_id text NOT NULL,
    user_id text NOT NULL,
    payload bytea NOT NULL,
    attributes jsonb NOT NULL,
    published_at timestamptz NOT NULL,
    reason text NOT NULL DEFAULT '',
    -- Delivered again although it was acknowledged, a message waits once nevertheless.
    UNIQUE (subscription, message_id)
);
CREATE INDEX pubsub_delayed_by_time ON clientmgr.pubsub_delayed (subscription, not_before);

-- Deliveries that ended in an exception. Google counts them only for subscriptions with a dead-letter policy.
CREATE TABLE clientmgr.pubsub_attempts (
    subscription text NOT NULL,
    message_id text NOT NULL,
    attempts integer NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (subscription, message_id)
);
CREATE INDEX pubsub_attempts_by_time ON clientmgr.pubsub_attempts (updated_at);

-- What the bridge has copied: Pub/Sub may deliver a message again long after its acknowledgement.
CREATE TABLE clientmgr.bridge_seen (
    subscription text NOT NULL,
    message_id text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (subscription, message_id)
);
CREATE INDEX bridge_seen_by_time ON clientmgr.bridge_seen (seen_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.pubsub_delayed, clientmgr.pubsub_attempts, clientmgr.bridge_seen
TO clientmgr_writer;
GRANT SELECT ON clientmgr.pubsub_delayed, clientmgr.pubsub_attempts, clientmgr.bridge_seen TO clientmgr_reader;
