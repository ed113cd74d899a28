-- Acknowledgements and longer deadlines no longer wait for claims. Before, all work on a subscription had one lock; on a
-- starved machine acknowledgements waited for it while their leases ran out, and messages came twice.
--
-- The rule: whoever holds the cursor's lock (claims, giving back, dead letters, seeks, retention) may wait for the row of
-- a delivery. Acknowledgements and longer deadlines work without that lock and wait for nothing: they skip rows that are
-- locked, and only for those the gateway asks again, with the lock ("patient"). So nobody waits in a circle.
--
-- An UPDATE by ctid can't follow a row that somebody else is changing. Hence rows are locked by a statement of its own
-- first; the next statement looks anew, and its ctids hold.

-- Ordering keys whose first message was acknowledged while somebody held the cursor's lock. That transaction may have put
-- messages behind it that the acknowledgement could not see: whoever gets the lock next lets them go.
CREATE TABLE clientmgr.gateway_freed_keys (
    subscription_id bigint NOT NULL,
    ordering_keys text[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
-- A key may be a person's: it is gone with the next look at the subscription, and no statistics keep it.
ALTER TABLE clientmgr.gateway_freed_keys ALTER COLUMN ordering_keys SET STATISTICS 0;
CREATE INDEX gateway_freed_keys_by_subscription ON clientmgr.gateway_freed_keys (subscription_id);
GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.gateway_freed_keys TO clientmgr_writer;
GRANT SELECT ON clientmgr.gateway_freed_keys TO clientmgr_reader;

DROP FUNCTION clientmgr.gateway_claim(text, integer, bigint, bigint, interval, integer);
DROP FUNCTION clientmgr.gateway_acknowledge(text, bigint[], bigint[], bigint[]);
DROP FUNCTION clientmgr.gateway_modify_deadline(text, bigint[], bigint[], bigint[], integer[]);

-- The subscription's row. SQLSTATE CM404: there is none.
CREATE FUNCTION clientmgr.gateway_find(subscription_name text, OUT s clientmgr.gateway_subscriptions)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO s FROM clientmgr.gateway_subscriptions AS g WHERE g.name = subscription_name;
    IF s.id IS NULL THEN
        RAISE EXCEPTION 'subscription % does not exist', subscription_name USING ERRCODE = 'CM404';
    END IF;
END
$$;

-- The subscription's row, with its cursor locked until the transaction ends.
CREATE OR REPLACE FUNCTION clientmgr.gateway_lock(subscription_name text, OUT s clientmgr.gateway_subscriptions)
LANGUAGE plpgsql AS $$
DECLARE
    freed text[];
BEGIN
    PERFORM FROM clientmgr.gateway_cursors AS c JOIN clientmgr.gateway_subscriptions AS g ON g.id = c.subscription_id
    WHERE g.name = subscription_name FOR NO KEY UPDATE OF c;
    -- A second statement, and so a second look: the first may have waited here while the row was changed.
    s := clientmgr.gateway_find(subscription_name);
    WITH notes AS (
        DELETE FROM clientmgr.gateway_freed_keys AS f WHERE f.subscription_id = s.id RETURNING f.ordering_keys
    )
    SELECT array_agg(DISTINCT k) INTO freed FROM notes AS n CROSS JOIN LATERAL unnest(n.ordering_keys) AS k;
    IF freed IS NOT NULL THEN
        PERFORM clientmgr.gateway_promote(s.id, freed);
    END IF;
END
$$;

-- Locks the rows of these offsets, however long it takes. Only for whoever holds the cursor's lock.
CREATE FUNCTION clientmgr.gateway_hold(of_subscription bigint, offsets bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM unnest(offsets) AS o (c_offset) CROSS JOIN LATERAL (
        SELECT FROM clientmgr.gateway_deliveries AS g
        WHERE g.subscription_id = of_subscription AND g.c_offset = o.c_offset FOR UPDATE
    ) AS held;
END
$$;

-- Takes back what is leased behind an offset of an ordering key: it must come again after that one. That delivery of
-- theirs does not count. (All leases of a key are of one claim, and so among its first thousand rows.)
CREATE FUNCTION clientmgr.gateway_take_back(
    of_subscription bigint, keys text[], after bigint[], spared bigint[], moment timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    behind bigint[];
BEGIN
    SELECT array_agg(b.c_offset) INTO behind
    FROM unnest(keys, after) AS k (ordering_key, c_offset) CROSS JOIN LATERAL (
        SELECT g.c_offset, g.lease FROM clientmgr.gateway_deliveries AS g
        WHERE g.subscription_id = of_subscription AND g.ordering_key = k.ordering_key AND g.ordering_key <> ''
            AND g.c_offset > k.c_offset
        ORDER BY g.c_offset LIMIT 1000
    ) AS b
    WHERE b.lease <> 0 AND b.c_offset <> ALL (spared);
    IF behind IS NULL THEN
        RETURN;
    END IF;
    PERFORM clientmgr.gateway_hold(of_subscription, behind);
    UPDATE clientmgr.gateway_deliveries AS d
    SET lease = 0, lease_until = moment, available_at = 'infinity',
        attempt = d.attempt - (d.lease_until > moment)::integer
    FROM unnest(behind) AS b (c_offset) CROSS JOIN LATERAL (
        SELECT g.ctid AS row FROM clientmgr.gateway_deliveries AS g
        WHERE g.subscription_id = of_subscription AND g.c_offset = b.c_offset OFFSET 0
    ) AS held
    WHERE d.ctid = held.row;
END
$$;

-- Leases up to `wanted` messages: first what is due again, then what the cursor meets. Returns them in log order.
-- attempt_limit: messages delivered so often are left for the dead-letter topic. settling: offsets that clients have
-- acknowledged or asked more time for, in time, and whose statements are still to come: they stay where they are.
CREATE FUNCTION clientmgr.gateway_claim(
    subscription_name text, wanted integer, max_bytes bigint, new_lease bigint, lease_time interval,
    attempt_limit integer, settling bigint[]
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
    keys text[];
    last_taken bigint[];
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
                AND (attempt_limit IS NULL OR a.attempt < attempt_limit) AND a.c_offset <> ALL (settling)
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
        SELECT h.c_offset, h.ordering_key, true AS is_head FROM heads AS h
        UNION ALL
        SELECT r.c_offset, h.ordering_key, false FROM heads AS h CROSS JOIN LATERAL (
            SELECT d.c_offset FROM clientmgr.gateway_deliveries AS d
            WHERE d.subscription_id = s.id AND d.ordering_key = h.ordering_key AND d.ordering_key <> ''
                AND d.c_offset > h.c_offset
            ORDER BY d.c_offset LIMIT wanted
        ) AS r
        WHERE h.ordering_key <> ''
    ),
    sized AS (
        SELECT r.*, m.bytes, sum(m.bytes) OVER (ORDER BY r.c_offset) - m.bytes AS bytes_before
        FROM (SELECT * FROM runs ORDER BY c_offset LIMIT wanted) AS r
        CROSS JOIN LATERAL (
            SELECT octet_length(o.payload) AS bytes FROM clientmgr.outbox_message_t AS o
            WHERE o.topic_id = s.topic_id AND o.c_offset = r.c_offset OFFSET 0
        ) AS m
    ),
    -- One that is settled at this moment, or has got more time by now, is left, and what follows it of its key.
    locked AS (
        SELECT z.*, held.available_at IS NOT NULL AND (NOT z.is_head OR held.available_at <= moment) AS is_ours
        FROM sized AS z LEFT JOIN LATERAL (
            SELECT g.available_at FROM clientmgr.gateway_deliveries AS g
            WHERE g.subscription_id = s.id AND g.c_offset = z.c_offset AND z.c_offset <> ALL (settling)
            FOR UPDATE SKIP LOCKED
        ) AS held ON true
        WHERE z.bytes_before < max_bytes
    ),
    complete AS (
        SELECT l.*, bool_and(l.is_ours) OVER (
            PARTITION BY l.ordering_key, CASE WHEN l.ordering_key = '' THEN l.c_offset END ORDER BY l.c_offset
        ) AS is_next FROM locked AS l
    )
    SELECT coalesce(array_agg(c.c_offset ORDER BY c.c_offset), '{}'), coalesce(sum(c.bytes), 0),
        array_agg(c.ordering_key), array_agg(c.c_offset)
    INTO taken, used, keys, last_taken FROM complete AS c WHERE c.is_next;

    IF taken <> '{}' THEN
        -- What followed the last one taken of a key was perhaps leased: no longer.
        SELECT array_agg(k.ordering_key), array_agg(k.c_offset) INTO keys, last_taken FROM (
            SELECT t.ordering_key, max(t.c_offset) AS c_offset FROM unnest(keys, last_taken) AS t (ordering_key, c_offset)
            WHERE t.ordering_key <> '' GROUP BY 1
        ) AS k;
        IF keys IS NOT NULL THEN
            PERFORM clientmgr.gateway_take_back(s.id, keys, last_taken, settling, moment);
        END IF;
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
        moment := clock_timestamp(); -- a lease counts from when it is given, not from the first page
        page := CASE WHEN s.ordered OR s.filter IS NOT NULL OR s.tenants IS NOT NULL
            THEN greatest(wanted - cardinality(taken), 500) ELSE wanted - cardinality(taken) END;
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

-- Whether an acknowledgement with this lease, made at this moment, counts. Ordered and exactly-once subscriptions take the
-- last delivery's lease only (an older one was taken back); elsewhere a late acknowledgement is as good as one in time:
-- somebody has handled the message.
CREATE FUNCTION clientmgr.gateway_acknowledges(
    d clientmgr.gateway_deliveries, exactly_once boolean, lease bigint, made_at timestamptz
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN lease <> 0 AND CASE WHEN exactly_once THEN d.lease = lease AND d.lease_until > made_at
    WHEN d.ordering_key <> '' THEN d.lease = lease ELSE true END;

-- Acknowledges. ages: for how many seconds the gateway has had each of them; what came in time counts.
-- Returns the positions in the arguments of those that are acknowledged now or were before; in_use: not yet, because
-- somebody has the row: ask again, patiently.
CREATE FUNCTION clientmgr.gateway_acknowledge(
    subscription_name text, ids bigint[], offsets bigint[], leases bigint[], ages float8[], patient boolean
) RETURNS TABLE (nth bigint, in_use boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    moment timestamptz;
    done bigint;
    freed text[];
BEGIN
    moment := clock_timestamp();
    IF patient THEN
        s := clientmgr.gateway_lock(subscription_name);
        PERFORM clientmgr.gateway_hold(s.id, offsets);
    ELSE
        s := clientmgr.gateway_find(subscription_name);
    END IF;
    WITH held AS (
        SELECT h.row FROM unnest(ids, offsets, leases, ages) AS a (id, c_offset, lease, age)
        CROSS JOIN LATERAL (
            SELECT g.ctid AS row FROM clientmgr.gateway_deliveries AS g
            WHERE g.subscription_id = s.id AND g.c_offset = a.c_offset
                AND clientmgr.gateway_acknowledges(g, s.exactly_once, a.lease, moment - make_interval(secs => a.age))
            FOR UPDATE SKIP LOCKED
        ) AS h
        WHERE a.id = s.id
    ),
    gone AS (
        DELETE FROM clientmgr.gateway_deliveries AS d USING held AS h WHERE d.ctid = h.row
        RETURNING d.c_offset, d.lease, d.ordering_key
    ),
    remembered AS (
        INSERT INTO clientmgr.gateway_acknowledged (subscription_id, c_offset, lease)
        SELECT s.id, g.c_offset, g.lease FROM gone AS g WHERE s.exactly_once
    )
    SELECT count(*), array_agg(DISTINCT g.ordering_key) FILTER (WHERE g.ordering_key <> '') INTO done, freed
    FROM gone AS g;
    IF freed IS NOT NULL THEN
        IF NOT patient THEN
            PERFORM FROM clientmgr.gateway_cursors AS c WHERE c.subscription_id = s.id FOR NO KEY UPDATE SKIP LOCKED;
        END IF;
        IF patient OR FOUND THEN
            PERFORM clientmgr.gateway_promote(s.id, freed);
        ELSE
            INSERT INTO clientmgr.gateway_freed_keys VALUES (s.id, freed);
        END IF;
    END IF;
    IF done = cardinality(ids) THEN
        RETURN QUERY SELECT n, false FROM generate_series(1, done) AS n;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT a.nth, still.there IS NOT NULL
    FROM unnest(ids, offsets, leases, ages) WITH ORDINALITY AS a (id, c_offset, lease, age, nth)
    LEFT JOIN LATERAL (
        SELECT true AS there FROM clientmgr.gateway_deliveries AS g
        WHERE a.id = s.id AND g.subscription_id = s.id AND g.c_offset = a.c_offset
            AND clientmgr.gateway_acknowledges(g, s.exactly_once, a.lease, moment - make_interval(secs => a.age))
        OFFSET 0
    ) AS still ON true
    WHERE still.there OR NOT s.exactly_once OR (a.id = s.id AND EXISTS (
        SELECT FROM clientmgr.gateway_acknowledged AS r
        WHERE r.subscription_id = s.id AND r.c_offset = a.c_offset AND r.lease = a.lease
    ));
END
$$;

-- Moves the deadlines of leases that hold, or held when the gateway was asked. Returns positions, as gateway_acknowledge.
CREATE FUNCTION clientmgr.gateway_extend(
    subscription_name text, ids bigint[], offsets bigint[], leases bigint[], ages float8[], seconds integer[],
    patient boolean
) RETURNS TABLE (nth bigint, in_use boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    moment timestamptz;
    done bigint[];
BEGIN
    -- If this commit is lost in a crash, a lease ends earlier or later than asked: nothing that anyone relies on.
    PERFORM set_config('synchronous_commit', 'off', true);
    moment := clock_timestamp();
    IF patient THEN
        s := clientmgr.gateway_lock(subscription_name);
        PERFORM clientmgr.gateway_hold(s.id, offsets);
    ELSE
        s := clientmgr.gateway_find(subscription_name);
    END IF;
    -- One row a delivery: of several wishes an UPDATE would take any. The last counts.
    WITH asked AS (
        SELECT a.c_offset, a.lease, max(a.age) AS age, array_agg(a.nth) AS positions,
            (array_agg(a.seconds ORDER BY a.nth DESC))[1] AS seconds
        FROM unnest(ids, offsets, leases, ages, seconds) WITH ORDINALITY AS a (id, c_offset, lease, age, seconds, nth)
        WHERE a.id = s.id AND a.lease <> 0 GROUP BY a.c_offset, a.lease
    ),
    held AS (
        SELECT a.positions, a.seconds, h.row FROM asked AS a CROSS JOIN LATERAL (
            SELECT g.ctid AS row FROM clientmgr.gateway_deliveries AS g
            WHERE g.subscription_id = s.id AND g.c_offset = a.c_offset AND g.lease = a.lease
                AND g.lease_until > moment - make_interval(secs => a.age)
            FOR UPDATE SKIP LOCKED
        ) AS h
    ),
    changed AS (
        UPDATE clientmgr.gateway_deliveries AS d SET
            lease_until = moment + make_interval(secs => h.seconds),
            available_at = moment + make_interval(secs => h.seconds)
                + clientmgr.gateway_backoff(s.minimum_backoff, s.maximum_backoff, d.attempt)
        FROM held AS h WHERE d.ctid = h.row
        RETURNING h.positions
    )
    SELECT coalesce(array_agg(p), '{}') INTO done FROM changed AS c CROSS JOIN LATERAL unnest(c.positions) AS p;
    RETURN QUERY SELECT p, false FROM unnest(done) AS p;
    IF cardinality(done) = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT a.nth, true
    FROM unnest(ids, offsets, leases, ages) WITH ORDINALITY AS a (id, c_offset, lease, age, nth)
    CROSS JOIN LATERAL (
        SELECT FROM clientmgr.gateway_deliveries AS g
        WHERE g.subscription_id = s.id AND g.c_offset = a.c_offset AND g.lease = a.lease
            AND g.lease_until > moment - make_interval(secs => a.age)
        OFFSET 0
    ) AS still
    WHERE a.id = s.id AND a.lease <> 0 AND a.nth <> ALL (done);
END
$$;

-- Gives messages back: due at once, or after their back-off, and before what follows them of their ordering keys.
-- Returns the positions of those that still held.
CREATE FUNCTION clientmgr.gateway_give_back(
    subscription_name text, ids bigint[], offsets bigint[], leases bigint[], ages float8[]
) RETURNS TABLE (nth bigint, in_use boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    moment timestamptz;
    keys text[];
    first_refused bigint[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    s := clientmgr.gateway_lock(subscription_name);
    PERFORM clientmgr.gateway_hold(s.id, offsets);
    moment := clock_timestamp();
    RETURN QUERY
    WITH asked AS (
        SELECT a.c_offset, a.lease, max(a.age) AS age, array_agg(a.nth) AS positions
        FROM unnest(ids, offsets, leases, ages) WITH ORDINALITY AS a (id, c_offset, lease, age, nth)
        WHERE a.id = s.id AND a.lease <> 0 GROUP BY a.c_offset, a.lease
    ),
    changed AS (
        UPDATE clientmgr.gateway_deliveries AS d SET
            lease = 0, lease_until = moment,
            available_at = moment + clientmgr.gateway_backoff(s.minimum_backoff, s.maximum_backoff, d.attempt)
        FROM asked AS a CROSS JOIN LATERAL (
            SELECT g.ctid AS row, g.lease, g.lease_until FROM clientmgr.gateway_deliveries AS g
            WHERE g.subscription_id = s.id AND g.c_offset = a.c_offset OFFSET 0
        ) AS held
        WHERE d.ctid = held.row AND held.lease = a.lease
            -- Giving back is never too late, but where nobody may have the message twice.
            AND (NOT s.exactly_once OR held.lease_until > moment - make_interval(secs => a.age))
        RETURNING a.positions
    )
    SELECT unnest(c.positions), false FROM changed AS c;
    SELECT array_agg(k.ordering_key), array_agg(k.c_offset) INTO keys, first_refused FROM (
        SELECT r.ordering_key, min(r.c_offset) AS c_offset
        FROM unnest(offsets) AS a (c_offset) CROSS JOIN LATERAL (
            SELECT g.ordering_key, g.c_offset, g.lease FROM clientmgr.gateway_deliveries AS g
            WHERE g.subscription_id = s.id AND g.c_offset = a.c_offset OFFSET 0
        ) AS r
        WHERE r.ordering_key <> '' AND r.lease = 0 GROUP BY 1
    ) AS k;
    IF keys IS NOT NULL THEN
        PERFORM clientmgr.gateway_take_back(s.id, keys, first_refused, '{}', moment);
    END IF;
END
$$;

-- Takes back the leases of a client that went away: due at once, except what waits for another of its ordering key.
CREATE OR REPLACE FUNCTION clientmgr.gateway_release(subscription_name text, offsets bigint[], leases bigint[])
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    s := clientmgr.gateway_lock(subscription_name);
    PERFORM clientmgr.gateway_hold(s.id, offsets);
    -- The lease's number stays: until somebody else has the message, an acknowledgement on its way still counts. But
    -- nobody gets more time for it, however long ago it was asked for.
    UPDATE clientmgr.gateway_deliveries AS d SET
        lease_until = '-infinity',
        available_at = CASE WHEN held.first_of_key < d.c_offset THEN 'infinity' ELSE clock_timestamp() END
    FROM unnest(offsets, leases) AS a (c_offset, lease) CROSS JOIN LATERAL (
        SELECT g.ctid AS row, g.lease, (
            SELECT e.c_offset FROM clientmgr.gateway_deliveries AS e
            WHERE e.subscription_id = s.id AND e.ordering_key = g.ordering_key AND e.ordering_key <> ''
            ORDER BY e.c_offset LIMIT 1
        ) AS first_of_key
        FROM clientmgr.gateway_deliveries AS g
        WHERE g.subscription_id = s.id AND g.c_offset = a.c_offset OFFSET 0
    ) AS held
    WHERE d.ctid = held.row AND held.lease = a.lease;
END
$$;
