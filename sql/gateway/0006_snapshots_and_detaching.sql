-- Snapshots: what a subscription had not acknowledged at a moment, to go back to. And subscriptions that were detached.

ALTER TABLE clientmgr.gateway_subscriptions ADD COLUMN detached boolean NOT NULL DEFAULT false;

CREATE TABLE clientmgr.gateway_snapshots (
    name text PRIMARY KEY, -- projects/…/snapshots/…; also its group_id in consumer_offsets, which keeps its messages
    topic text NOT NULL, -- projects/…/topics/…, or _deleted-topic_
    topic_id integer NOT NULL REFERENCES clientmgr.log_counter,
    labels jsonb NOT NULL,
    -- Not acknowledged: these offsets, and everything from next_offset on.
    unacknowledged bigint [] NOT NULL,
    next_offset bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    made_by text NOT NULL,
    tenants text [] -- as the subscription had them
);
CREATE INDEX gateway_snapshots_by_topic ON clientmgr.gateway_snapshots (topic_id);
CREATE INDEX gateway_snapshots_by_maker ON clientmgr.gateway_snapshots (made_by);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.gateway_snapshots TO clientmgr_writer;
GRANT SELECT ON clientmgr.gateway_snapshots TO clientmgr_reader;

-- Groups in consumer_offsets that read nothing and only keep messages: of topics that retain what is acknowledged, and
-- of snapshots.
CREATE VIEW clientmgr.gateway_holders AS
SELECT t.topic_id, t.name FROM clientmgr.gateway_topics AS t
UNION ALL
SELECT n.topic_id, n.name FROM clientmgr.gateway_snapshots AS n;
GRANT SELECT ON clientmgr.gateway_holders TO clientmgr_writer, clientmgr_reader;

-- Takes a snapshot of where the subscription stands. It lives for `lifetime` from the oldest message that it keeps.
-- Returns when it ends; null: there is one of that name. SQLSTATE CM412: it would not live for `least_lifetime`.
CREATE FUNCTION clientmgr.gateway_take_snapshot(
    subscription_name text, snapshot_name text, its_labels jsonb, maker text, lifetime interval, least_lifetime interval
) RETURNS timestamptz
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    held bigint[];
    stands_at bigint;
    keeps_from bigint;
    oldest timestamptz;
    ends timestamptz;
BEGIN
    s := clientmgr.gateway_lock(subscription_name);
    SELECT c.next_offset INTO stands_at FROM clientmgr.gateway_cursors AS c WHERE c.subscription_id = s.id;
    SELECT coalesce(array_agg(d.c_offset ORDER BY d.c_offset), '{}') INTO held
    FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id;
    keeps_from := coalesce(held[1], stands_at);
    SELECT m.published_at INTO oldest FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = s.topic_id AND m.c_offset >= keeps_from ORDER BY m.c_offset LIMIT 1;
    ends := least(coalesce(oldest, now()), now()) + lifetime;
    IF ends < now() + least_lifetime THEN
        RAISE EXCEPTION 'snapshot % would end at %', snapshot_name, ends USING ERRCODE = 'CM412';
    END IF;
    -- One that has ended, and that nobody has removed yet, is in nobody's way.
    DELETE FROM clientmgr.gateway_snapshots AS n WHERE n.name = snapshot_name AND n.expires_at <= now();
    INSERT INTO clientmgr.gateway_snapshots
        (name, topic, topic_id, labels, unacknowledged, next_offset, expires_at, made_by, tenants)
    VALUES (snapshot_name, s.topic, s.topic_id, its_labels, held, stands_at, ends, maker, s.tenants)
    ON CONFLICT (name) DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- The subscription's own group is at or before this offset, and stays there while it is locked: nothing is lost
    -- between the two.
    INSERT INTO clientmgr.consumer_offsets AS o (group_id, topic_id, partition_id, next_offset)
    SELECT snapshot_name, c.id, p, keeps_from
    FROM clientmgr.log_counter AS c, generate_series(0, c.total_partitions - 1) AS p WHERE c.id = s.topic_id
    ON CONFLICT (group_id, topic_id, partition_id) DO UPDATE SET next_offset = excluded.next_offset;
    RETURN ends;
END
$$;

-- Makes the subscription stand where the snapshot was taken: what was acknowledged since comes again, what had been
-- acknowledged by then does not. Only messages that the subscription may deliver come back, whoever's the snapshot was.
-- Returns false: there is no such snapshot of the subscription's topic.
CREATE FUNCTION clientmgr.gateway_seek_snapshot(subscription_name text, snapshot_name text) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    n clientmgr.gateway_snapshots;
BEGIN
    s := clientmgr.gateway_lock(subscription_name);
    SELECT * INTO n FROM clientmgr.gateway_snapshots AS g
    WHERE g.name = snapshot_name AND g.expires_at > now() AND g.topic_id = s.topic_id AND g.topic = s.topic;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id;
    INSERT INTO clientmgr.gateway_deliveries
        (subscription_id, c_offset, attempt, lease, lease_until, available_at, ordering_key)
    SELECT s.id, k.c_offset, 0, 0, now(),
        CASE WHEN k.ordering_key <> '' AND k.nth > 1 THEN 'infinity' ELSE clock_timestamp() END, k.ordering_key
    FROM (
        SELECT m.c_offset, m.ordering_key,
            row_number() OVER (PARTITION BY m.ordering_key ORDER BY m.c_offset) AS nth
        FROM unnest(n.unacknowledged) AS u (c_offset)
        CROSS JOIN LATERAL (
            SELECT o.c_offset, CASE WHEN s.ordered THEN o.host_id ELSE '' END AS ordering_key
            FROM clientmgr.outbox_message_t AS o
            WHERE o.topic_id = s.topic_id AND o.c_offset = u.c_offset AND o.group_id IS NULL
                AND o.published_at > now() - s.retention
                AND (s.filter IS NULL OR coalesce(o.attributes @@ s.filter, false))
                AND (s.tenants IS NULL OR o.host_id = ANY (s.tenants))
            OFFSET 0
        ) AS m
    ) AS k;
    UPDATE clientmgr.gateway_cursors AS c SET next_offset = n.next_offset WHERE c.subscription_id = s.id;
    PERFORM clientmgr.gateway_report_progress(s);
    RETURN true;
END
$$;

-- After a seek to `moment`: what snapshots keep of the topic comes again too, although it was acknowledged.
CREATE FUNCTION clientmgr.gateway_replay_kept(subscription_name text, moment timestamptz) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    kept_from bigint;
    replayed_from bigint;
BEGIN
    s := clientmgr.gateway_lock(subscription_name);
    SELECT min(o.next_offset) INTO kept_from
    FROM clientmgr.gateway_snapshots AS n JOIN clientmgr.consumer_offsets AS o ON o.group_id = n.name
    WHERE n.topic_id = s.topic_id AND n.topic = s.topic AND n.expires_at > now();
    IF kept_from IS NULL THEN
        RETURN;
    END IF;
    replayed_from := greatest(kept_from, clientmgr.gateway_offset_at(s.topic_id, moment));
    UPDATE clientmgr.gateway_cursors AS c SET next_offset = replayed_from
    WHERE c.subscription_id = s.id AND c.next_offset > replayed_from;
    IF FOUND THEN
        DELETE FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id AND d.c_offset >= replayed_from;
        PERFORM clientmgr.gateway_report_progress(s);
    END IF;
END
$$;

-- Ends the subscription's connection to its topic for good: it drops what it has and gets nothing more.
CREATE FUNCTION clientmgr.gateway_detach(subscription_name text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    ends_at bigint;
BEGIN
    s := clientmgr.gateway_lock(subscription_name);
    IF NOT s.detached THEN
        SELECT c.next_offset INTO ends_at FROM clientmgr.gateway_cursors AS c WHERE c.subscription_id = s.id;
        -- It ends where it stands, so that the cursor never meets a message again.
        UPDATE clientmgr.gateway_subscriptions AS g SET detached = true, end_offset = ends_at WHERE g.id = s.id;
        DELETE FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id;
        DELETE FROM clientmgr.gateway_acknowledged AS a WHERE a.subscription_id = s.id;
        DELETE FROM clientmgr.consumer_offsets AS o WHERE o.group_id = s.name AND o.topic_id = s.topic_id;
    END IF;
    RETURN s.id;
END
$$;
