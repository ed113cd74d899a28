-- Who made a topic or a subscription, for limits, and whose messages a subscription may deliver.

ALTER TABLE clientmgr.gateway_topics ADD COLUMN made_by text NOT NULL DEFAULT ''; -- '': our own code, or unknown
CREATE INDEX gateway_topics_by_maker ON clientmgr.gateway_topics (made_by);
ALTER TABLE clientmgr.gateway_subscriptions
    ADD COLUMN made_by text NOT NULL DEFAULT '',
    ADD COLUMN tenants text[]; -- null: of all customers. Else only messages with one of these as their ordering key
CREATE INDEX gateway_subscriptions_by_maker ON clientmgr.gateway_subscriptions (made_by);

-- As before, and only the subscription's customers.
-- Leases up to `wanted` messages: first what is due again, then what the cursor meets. Returns them in log order.
-- attempt_limit: messages delivered so often are left for the dead-letter topic.
CREATE OR REPLACE FUNCTION clientmgr.gateway_claim(
    subscription_name text, wanted integer, max_bytes bigint, new_lease bigint, lease_time interval,
    attempt_limit integer
)
RETURNS TABLE (
    c_offset bigint, attempt integer, host_id text, user_id text, payload bytea, attributes jsonb,
    published_at timestamptz
)
LANGUAGE plpgsql
-- Always a few rows by index: estimates for tables that fill and empty all day would have it read them whole.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    -- Blocked messages of busy ordering keys are set aside so that others can pass; this many, lest one hot key makes
    -- us copy its whole backlog.
    read_ahead CONSTANT integer := 10000;
    s clientmgr.gateway_subscriptions;
    next_up bigint;
    began_at bigint;
    seen_to bigint;
    moment timestamptz;
    taken bigint[] := '{}';
    fresh bigint[];
    used bigint := 0;
    fresh_bytes bigint;
    blocked bigint;
    page integer;
BEGIN
    s := clientmgr.gateway_lock(subscription_name);
    moment := clock_timestamp();
    lease_time := coalesce(lease_time, s.ack_deadline);
    SELECT c.next_offset INTO next_up FROM clientmgr.gateway_cursors AS c WHERE c.subscription_id = s.id;
    began_at := next_up;

    WITH heads AS (
        SELECT d.c_offset, d.ordering_key FROM (
            SELECT a.c_offset, a.ordering_key FROM clientmgr.gateway_deliveries AS a
            WHERE a.subscription_id = s.id AND a.available_at <= moment AND a.available_at < 'infinity'
                AND (attempt_limit IS NULL OR a.attempt < attempt_limit)
            OFFSET 0
        ) AS d
        WHERE d.ordering_key = '' OR d.c_offset = (
            SELECT e.c_offset FROM clientmgr.gateway_deliveries AS e
            WHERE e.subscription_id = s.id AND e.ordering_key = d.ordering_key AND e.ordering_key <> ''
            ORDER BY e.c_offset LIMIT 1
        )
        ORDER BY d.c_offset LIMIT wanted
    ),
    -- The first of a key brings along what follows it: also what is leased, since that must come after it again.
    runs AS (
        SELECT h.c_offset FROM heads AS h
        UNION ALL
        SELECT r.c_offset FROM heads AS h CROSS JOIN LATERAL (
            SELECT d.c_offset FROM clientmgr.gateway_deliveries AS d
            WHERE d.subscription_id = s.id AND d.ordering_key = h.ordering_key AND d.ordering_key <> ''
                AND d.c_offset > h.c_offset
            ORDER BY d.c_offset LIMIT wanted
        ) AS r
        WHERE h.ordering_key <> ''
    ),
    sized AS (
        SELECT r.c_offset, m.bytes, sum(m.bytes) OVER (ORDER BY r.c_offset) - m.bytes AS bytes_before
        FROM (SELECT c_offset FROM runs ORDER BY c_offset LIMIT wanted) AS r
        CROSS JOIN LATERAL (
            SELECT octet_length(o.payload) AS bytes FROM clientmgr.outbox_message_t AS o
            WHERE o.topic_id = s.topic_id AND o.c_offset = r.c_offset OFFSET 0
        ) AS m
    )
    SELECT coalesce(array_agg(z.c_offset ORDER BY z.c_offset), '{}'), coalesce(sum(z.bytes), 0)
    INTO taken, used FROM sized AS z WHERE z.bytes_before < max_bytes;

    IF taken <> '{}' THEN
        -- What followed the last one taken of a key was perhaps leased: no longer, and that delivery does not count.
        -- (All leases of a key are of one claim, and so among its first thousand rows.)
        UPDATE clientmgr.gateway_deliveries AS d
        SET lease = 0, lease_until = moment, available_at = 'infinity',
            attempt = d.attempt - (d.lease_until > moment)::integer
        FROM (
            SELECT t.ordering_key, max(t.c_offset) AS last_taken
            FROM unnest(taken) AS n (c_offset) CROSS JOIN LATERAL (
                SELECT g.ordering_key, g.c_offset FROM clientmgr.gateway_deliveries AS g
                WHERE g.subscription_id = s.id AND g.c_offset = n.c_offset OFFSET 0
            ) AS t
            WHERE t.ordering_key <> '' GROUP BY 1
        ) AS k
        CROSS JOIN LATERAL (
            SELECT g.ctid AS row, g.lease FROM clientmgr.gateway_deliveries AS g
            WHERE g.subscription_id = s.id AND g.ordering_key = k.ordering_key AND g.ordering_key <> ''
                AND g.c_offset > k.last_taken
            ORDER BY g.c_offset LIMIT 1000
        ) AS behind
        WHERE d.ctid = behind.row AND behind.lease <> 0;
        UPDATE clientmgr.gateway_deliveries AS d SET
            attempt = d.attempt + n.counts,
            lease = new_lease,
            lease_until = moment + lease_time,
            available_at = moment + lease_time
                + clientmgr.gateway_backoff(s.minimum_backoff, s.maximum_backoff, d.attempt + n.counts)
        FROM (
            SELECT t.row, t.counts FROM unnest(taken) AS o (c_offset) CROSS JOIN LATERAL (
                SELECT g.ctid AS row, CASE WHEN g.lease <> 0 AND g.lease_until > moment THEN 0 ELSE 1 END AS counts
                FROM clientmgr.gateway_deliveries AS g
                WHERE g.subscription_id = s.id AND g.c_offset = o.c_offset OFFSET 0
            ) AS t
        ) AS n
        WHERE d.ctid = n.row;
    END IF;

    WHILE cardinality(taken) < wanted AND used < max_bytes LOOP
        page := CASE WHEN s.ordered OR s.filter IS NOT NULL OR s.tenants IS NOT NULL THEN greatest(wanted - cardinality(taken), 500)
            ELSE wanted - cardinality(taken) END;
        WITH read AS (
            SELECT m.c_offset, octet_length(m.payload) AS bytes,
                CASE WHEN s.ordered THEN m.host_id ELSE '' END AS ordering_key,
                m.group_id IS NULL AND m.published_at > moment - s.retention
                    AND (s.filter IS NULL OR coalesce(m.attributes @@ s.filter, false))
                    AND (s.tenants IS NULL OR m.host_id = ANY (s.tenants)) AS matches
            FROM clientmgr.outbox_message_t AS m
            WHERE m.topic_id = s.topic_id AND m.c_offset >= next_up
                AND m.c_offset < coalesce(s.end_offset, 9223372036854775807)
            ORDER BY m.c_offset LIMIT page
        ),
        -- Keys with messages that this claim did not take: theirs are in somebody's hands, or wait for their time.
        busy AS MATERIALIZED (
            SELECT k.ordering_key FROM (
                SELECT DISTINCT r.ordering_key FROM read AS r WHERE r.matches AND r.ordering_key <> ''
            ) AS k
            -- LATERAL, so that each key is one look into the index; as EXISTS it is planned as a join over all rows.
            CROSS JOIN LATERAL (
                SELECT FROM clientmgr.gateway_deliveries AS d
                WHERE d.subscription_id = s.id AND d.ordering_key = k.ordering_key AND d.ordering_key <> ''
                    AND d.lease <> new_lease
                LIMIT 1
            ) AS held
        ),
        judged AS (
            SELECT r.*, r.matches AND r.ordering_key IN (SELECT b.ordering_key FROM busy AS b) AS waits FROM read AS r
        ),
        ranked AS (
            SELECT j.*,
                count(*) FILTER (WHERE j.matches AND NOT j.waits) OVER w AS nth,
                coalesce(sum(j.bytes) FILTER (WHERE j.matches AND NOT j.waits) OVER w, 0) - j.bytes AS bytes_before
            FROM judged AS j WINDOW w AS (ORDER BY j.c_offset)
        ),
        -- The first that could go out but no longer fits: the cursor stays there.
        stop AS (
            SELECT min(k.c_offset) AS c_offset FROM ranked AS k
            WHERE k.matches AND NOT k.waits
                AND (k.nth > wanted - cardinality(taken) OR k.bytes_before >= max_bytes - used)
        ),
        passed AS (
            SELECT k.* FROM ranked AS k
            WHERE k.c_offset < coalesce((SELECT e.c_offset FROM stop AS e), 9223372036854775807)
        ),
        stored AS (
            INSERT INTO clientmgr.gateway_deliveries
                (subscription_id, c_offset, attempt, lease, lease_until, available_at, ordering_key)
            SELECT s.id, p.c_offset,
                CASE WHEN p.waits THEN 0 ELSE 1 END,
                CASE WHEN p.waits THEN 0 ELSE new_lease END,
                CASE WHEN p.waits THEN moment ELSE moment + lease_time END,
                CASE WHEN p.waits THEN 'infinity'
                    ELSE moment + lease_time + clientmgr.gateway_backoff(s.minimum_backoff, s.maximum_backoff, 1) END,
                p.ordering_key
            FROM passed AS p WHERE p.matches
        )
        SELECT coalesce(array_agg(p.c_offset ORDER BY p.c_offset) FILTER (WHERE p.matches AND NOT p.waits), '{}'),
            coalesce(sum(p.bytes) FILTER (WHERE p.matches AND NOT p.waits), 0),
            max(p.c_offset), count(*) FILTER (WHERE p.waits)
        INTO fresh, fresh_bytes, seen_to, blocked FROM passed AS p;
        EXIT WHEN seen_to IS NULL;
        next_up := seen_to + 1;
        taken := taken || fresh;
        used := used + fresh_bytes;
        IF fresh = '{}' AND blocked > 0 THEN
            SELECT count(*) INTO blocked FROM (
                SELECT FROM clientmgr.gateway_deliveries AS d
                WHERE d.subscription_id = s.id AND d.available_at = 'infinity' LIMIT read_ahead
            ) AS waiting;
            EXIT WHEN blocked >= read_ahead;
        END IF;
    END LOOP;

    IF next_up > began_at THEN
        UPDATE clientmgr.gateway_cursors AS c SET next_offset = next_up WHERE c.subscription_id = s.id;
    END IF;
    RETURN QUERY
    SELECT m.c_offset, d.attempt, m.host_id, m.user_id, m.payload, m.attributes, m.published_at
    FROM unnest(taken) AS n (c_offset)
    CROSS JOIN LATERAL (
        SELECT g.attempt FROM clientmgr.gateway_deliveries AS g
        WHERE g.subscription_id = s.id AND g.c_offset = n.c_offset OFFSET 0
    ) AS d
    CROSS JOIN LATERAL (
        SELECT o.* FROM clientmgr.outbox_message_t AS o
        WHERE o.topic_id = s.topic_id AND o.c_offset = n.c_offset OFFSET 0
    ) AS m
    ORDER BY m.c_offset;
END
$$;
