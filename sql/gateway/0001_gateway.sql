-- The Pub/Sub gateway's memory: what Google's API knows of a topic and a subscription beyond the log, and which
-- messages of a subscription are neither untouched nor acknowledged. The messages themselves stay in outbox_message_t.

CREATE TABLE clientmgr.gateway_topics (
    topic_id integer PRIMARY KEY REFERENCES clientmgr.log_counter,
    name text NOT NULL UNIQUE, -- projects/…/topics/…
    config jsonb NOT NULL, -- google.pubsub.v1.Topic in protobuf's JSON
    retention interval, -- topics that keep what their subscriptions have acknowledged
    -- The log of a deleted topic stays while subscriptions still read it; who makes the topic again continues that log.
    deleted_at timestamptz
);

CREATE TABLE clientmgr.gateway_subscriptions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE, -- projects/…/subscriptions/…; also its group_id in consumer_offsets
    topic text NOT NULL, -- projects/…/topics/…, or _deleted-topic_
    topic_id integer NOT NULL REFERENCES clientmgr.log_counter,
    end_offset bigint, -- of a deleted topic: where it ended
    config jsonb NOT NULL, -- google.pubsub.v1.Subscription in protobuf's JSON; what SQL needs of it is repeated below
    filter jsonpath,
    ordered boolean NOT NULL,
    exactly_once boolean NOT NULL,
    ack_deadline interval NOT NULL,
    minimum_backoff interval, -- null: what was refused comes again at once
    maximum_backoff interval,
    dead_letter_topic text,
    max_delivery_attempts integer,
    retention interval NOT NULL,
    retain_acked boolean NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX gateway_subscriptions_by_topic ON clientmgr.gateway_subscriptions (topic_id);

-- The next log offset that the subscription has not looked at. Locking this row is what puts all work on one
-- subscription in line, over any number of gateways: claims, acknowledgements, deadlines, dead letters, seeks.
CREATE TABLE clientmgr.gateway_cursors (
    subscription_id bigint PRIMARY KEY REFERENCES clientmgr.gateway_subscriptions ON DELETE CASCADE,
    next_offset bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Messages below the cursor that are not acknowledged. One that is in neither place is acknowledged: the row's absence
-- is the acknowledgement, so it costs one delete and is as durable as the commit.
CREATE TABLE clientmgr.gateway_deliveries (
    subscription_id bigint NOT NULL,
    c_offset bigint NOT NULL,
    attempt integer NOT NULL,
    lease bigint NOT NULL, -- random, new with each delivery; 0: nobody has it
    lease_until timestamptz NOT NULL,
    -- When it may be delivered again: the lease's end and the back-off after it. 'infinity': it waits for those before
    -- it with the same ordering key.
    available_at timestamptz NOT NULL,
    ordering_key text NOT NULL, -- '' where the subscription is not ordered
    PRIMARY KEY (subscription_id, c_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
-- Both partial: so that neither is ever mistaken for a way to look up a row by its offset.
CREATE INDEX gateway_deliveries_by_time ON clientmgr.gateway_deliveries (subscription_id, available_at)
WHERE available_at < 'infinity';
CREATE INDEX gateway_deliveries_by_key ON clientmgr.gateway_deliveries (subscription_id, ordering_key, c_offset)
WHERE ordering_key <> '';

-- Leases acknowledged a short while ago, of exactly-once subscriptions only: a client that lost our answer asks again
-- and must hear yes.
CREATE TABLE clientmgr.gateway_acknowledged (
    subscription_id bigint NOT NULL,
    c_offset bigint NOT NULL,
    lease bigint NOT NULL,
    acknowledged_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (subscription_id, c_offset, lease)
);
CREATE INDEX gateway_acknowledged_by_time ON clientmgr.gateway_acknowledged (acknowledged_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.gateway_topics, clientmgr.gateway_subscriptions,
    clientmgr.gateway_cursors, clientmgr.gateway_deliveries, clientmgr.gateway_acknowledged TO clientmgr_writer;
GRANT SELECT ON clientmgr.gateway_topics, clientmgr.gateway_subscriptions, clientmgr.gateway_cursors,
    clientmgr.gateway_deliveries, clientmgr.gateway_acknowledged TO clientmgr_reader;
