-- Publishing in a caller's transaction. Nothing of a topic is locked before the COMMIT: what a transaction publishes waits
-- in pending_publish_t, and a deferred constraint trigger moves it into the log as the last thing that the transaction does.
-- What one transaction publishes to one topic for one tenant is one transaction group; tenants never share one.

-- One row a call, with arrays: a transaction's own rows, which nobody else ever sees. UNLOGGED, because they never outlive
-- their transaction.
CREATE UNLOGGED TABLE clientmgr.pending_publish_t (
    id bigint GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    topic_id integer NOT NULL,
    host_ids text[] NOT NULL,
    user_ids text[] NOT NULL,
    payloads bytea[] NOT NULL,
    attributes text[], -- of JSON; null: nobody has any
    deliver_ats timestamptz[], -- null: all at once
    key_digests bytea[], -- null: nobody has a dedup key
    PRIMARY KEY (xid, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- They are read once and thrown away: compressing them would be the dearest part of it.
ALTER TABLE clientmgr.pending_publish_t ALTER COLUMN payloads SET STORAGE EXTERNAL;

-- Dedup keys, as digests: a key may name a customer's contact or order.
CREATE TABLE clientmgr.publish_keys (
    topic_id integer NOT NULL REFERENCES clientmgr.log_counter,
    digest bytea NOT NULL,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic_id, digest)
);
CREATE INDEX publish_keys_by_time ON clientmgr.publish_keys (published_at);

-- A message that was published for later waits where retries do. group_id null: for every group.
ALTER TABLE clientmgr.delayed_message_t ALTER COLUMN group_id DROP NOT NULL, ALTER COLUMN original_offset DROP NOT NULL;
CREATE INDEX delayed_message_for_all ON clientmgr.delayed_message_t (not_before) WHERE group_id IS NULL;

-- Topics that are locked last, as clientmgr/contracts/topics.py says (SHARED). Whoever appends to several topics goes by
-- this and then by name (COLLATE "C"), as in_lock_order does: so no two wait for each other.
CREATE FUNCTION clientmgr.is_locked_last(topic text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN topic IN ('data-platform.not-sent', 'sending-mg-errors');

-- The counter's row would have changed since the transaction's snapshot whenever anybody else had published.
CREATE FUNCTION clientmgr.refuse_old_snapshots() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'publishing needs READ COMMITTED, and this transaction is %',
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'feature_not_supported',
            HINT = 'Publish in a transaction of its own, or begin with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END
$$;

-- Takes the next `message_count` offsets of a topic and keeps its counter locked until the transaction ends.
-- cut_off_ms: how long the transaction may stay idle from here on, for it now holds up everyone who publishes to the topic.
-- own_transaction_id: the caller's id of the group. Daemons before this file passed none and counted on their messages
-- becoming one group whatever their tenants: they are refused.
CREATE OR REPLACE FUNCTION clientmgr.reserve_offsets(
    topic text, message_count bigint, own_transaction_id uuid, cut_off_ms integer,
    OUT topic_id integer, OUT first_offset bigint, OUT total_partitions integer, OUT transaction_id uuid
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF own_transaction_id IS NULL THEN
        RAISE EXCEPTION 'this process is older than the database''s migrations: restart it with the current release'
            USING ERRCODE = 'feature_not_supported';
    END IF;
    PERFORM clientmgr.refuse_old_snapshots();
    IF cut_off_ms IS NOT NULL THEN
        PERFORM set_config('idle_in_transaction_session_timeout', cut_off_ms::text, true);
    END IF;
    UPDATE clientmgr.log_counter AS c SET next_offset = c.next_offset + message_count
    WHERE c.topic = reserve_offsets.topic
    RETURNING c.id, c.next_offset - message_count, c.total_partitions, own_transaction_id
    INTO topic_id, first_offset, total_partitions, transaction_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'topic % does not exist', reserve_offsets.topic
            USING ERRCODE = 'no_data_found', DETAIL = reserve_offsets.topic;
    END IF;
END
$$;
ALTER TABLE clientmgr.log_counter DROP COLUMN tx_xid, DROP COLUMN tx_first_offset, DROP COLUMN transaction_id;

-- Publishes with the caller's transaction: appended when it commits. The arrays belong together, message by message.
CREATE FUNCTION clientmgr.stage_messages(
    topic text, host_ids text[], user_ids text[], payloads bytea[], attributes text[], deliver_ats timestamptz[],
    key_digests bytea[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM clientmgr.refuse_old_snapshots();
    INSERT INTO clientmgr.pending_publish_t (
        topic_id, host_ids, user_ids, payloads, attributes, deliver_ats, key_digests
    )
    SELECT c.id, host_ids, user_ids, payloads, attributes, deliver_ats, key_digests
    FROM clientmgr.log_counter AS c WHERE c.topic = stage_messages.topic;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'topic % does not exist', topic USING ERRCODE = 'no_data_found', DETAIL = topic;
    END IF;
END
$$;

-- Moves what this transaction has published to one topic into the log, and what is due later to where that waits.
CREATE FUNCTION clientmgr.append_pending_of(topic_id integer, topic text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- The planner knows nothing of these rows, which come and go; and a sort of payloads should stay in memory.
SET enable_seqscan = off SET work_mem = '64MB' AS $$
#variable_conflict use_variable
DECLARE
    -- Read once: what is due is decided in two statements.
    moment CONSTANT timestamptz := clock_timestamp();
    messages bigint;
    has_delays boolean;
    has_keys boolean;
    dropped_calls bigint[] := '{}';
    dropped_positions bigint[] := '{}';
    delayed bigint := 0;
    reserved record;
    base_id CONSTANT text := gen_random_uuid();
BEGIN
    SELECT sum(cardinality(p.host_ids)), bool_or(p.deliver_ats IS NOT NULL), bool_or(p.key_digests IS NOT NULL)
    INTO messages, has_delays, has_keys
    FROM clientmgr.pending_publish_t AS p WHERE p.xid = pg_current_xact_id() AND p.topic_id = topic_id;

    IF has_keys THEN
        -- Whoever has published the same key to this topic has let go of the counter, so it has committed or never will:
        -- nobody ever waits for a key. The first of several is the one that counts.
        PERFORM FROM clientmgr.log_counter AS c WHERE c.id = topic_id FOR NO KEY UPDATE;
        WITH keyed AS (
            SELECT p.id, m.position, m.digest,
                row_number() OVER (PARTITION BY m.digest ORDER BY p.id, m.position) AS occurrence
            FROM clientmgr.pending_publish_t AS p
            CROSS JOIN LATERAL unnest(p.key_digests) WITH ORDINALITY AS m (digest, position)
            WHERE p.xid = pg_current_xact_id() AND p.topic_id = topic_id AND m.digest IS NOT NULL
        ), added AS (
            INSERT INTO clientmgr.publish_keys AS k (topic_id, digest)
            SELECT topic_id, digest FROM keyed WHERE occurrence = 1
            ON CONFLICT DO NOTHING RETURNING k.digest
        )
        SELECT coalesce(array_agg(keyed.id), '{}'), coalesce(array_agg(keyed.position), '{}')
        INTO dropped_calls, dropped_positions
        FROM keyed WHERE occurrence > 1 OR NOT EXISTS (SELECT FROM added WHERE added.digest = keyed.digest);
    END IF;

    IF has_delays THEN
        INSERT INTO clientmgr.delayed_message_t (
            group_id, topic_id, not_before, attempts, host_id, user_id, payload, attributes, original_published_at
        )
        SELECT NULL, topic_id, m.deliver_at, 0, m.host_id, m.user_id, m.payload, coalesce(m.attributes::jsonb, '{}'), moment
        FROM clientmgr.pending_publish_t AS p
        CROSS JOIN LATERAL unnest(p.host_ids, p.user_ids, p.payloads, p.attributes, p.deliver_ats)
            WITH ORDINALITY AS m (host_id, user_id, payload, attributes, deliver_at, position)
        WHERE p.xid = pg_current_xact_id() AND p.topic_id = topic_id AND m.deliver_at > moment
            AND NOT EXISTS (
                SELECT FROM unnest(dropped_calls, dropped_positions) AS d (call, position)
                WHERE (d.call, d.position) = (p.id, m.position)
            )
        ORDER BY p.id, m.position;
        GET DIAGNOSTICS delayed = ROW_COUNT;
    END IF;

    messages := messages - cardinality(dropped_calls) - delayed;
    IF messages = 0 THEN
        RETURN;
    END IF;
    SELECT * INTO reserved FROM clientmgr.reserve_offsets(topic, messages, gen_random_uuid(), NULL);
    -- Each tenant's messages lie together, in the order in which they were published.
    INSERT INTO clientmgr.outbox_message_t (
        topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, user_id, payload, attributes
    )
    SELECT topic_id, clientmgr.partition_of(m.host_id, reserved.total_partitions),
        reserved.first_offset - 1 + row_number() OVER (ORDER BY m.host_id COLLATE "C", p.id, m.position),
        reserved.first_offset - 1 + count(*) OVER (ORDER BY m.host_id COLLATE "C"), -- all up to this tenant's last
        encode(substring(sha256(convert_to(base_id || m.host_id, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid,
        m.host_id, m.user_id, m.payload, coalesce(m.attributes::jsonb, '{}')
    FROM clientmgr.pending_publish_t AS p
    CROSS JOIN LATERAL unnest(p.host_ids, p.user_ids, p.payloads, p.attributes, p.deliver_ats)
        WITH ORDINALITY AS m (host_id, user_id, payload, attributes, deliver_at, position)
    WHERE p.xid = pg_current_xact_id() AND p.topic_id = topic_id AND (m.deliver_at IS NULL OR m.deliver_at <= moment)
        AND NOT EXISTS (
            SELECT FROM unnest(dropped_calls, dropped_positions) AS d (call, position)
            WHERE (d.call, d.position) = (p.id, m.position)
        );
END
$$;

-- At COMMIT, or at SET CONSTRAINTS … IMMEDIATE. The first call moves all that the transaction has published so far; those
-- for its other rows find nothing. With the owner's rights: whoever may only publish can't write to the log.
CREATE FUNCTION clientmgr.append_pending() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    target record;
BEGIN
    FOR target IN
        SELECT c.id, c.topic FROM clientmgr.log_counter AS c
        WHERE c.id IN (SELECT p.topic_id FROM clientmgr.pending_publish_t AS p WHERE p.xid = pg_current_xact_id())
        ORDER BY clientmgr.is_locked_last(c.topic), c.topic COLLATE "C"
    LOOP
        PERFORM clientmgr.append_pending_of(target.id, target.topic);
    END LOOP;
    DELETE FROM clientmgr.pending_publish_t AS p WHERE p.xid = pg_current_xact_id();
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER append_at_commit AFTER INSERT ON clientmgr.pending_publish_t
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION clientmgr.append_pending();

-- Appends messages of the topic whose time has come to the end of its log, for every group, in the order of their times,
-- each as a transaction of its own. next_due_s: in how many seconds the next is due; null: none waits.
CREATE FUNCTION clientmgr.append_due(topic_id integer, most integer, OUT appended integer, OUT next_due_s float8)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    due bigint[];
    reserved record;
BEGIN
    appended := 0;
    SELECT extract(epoch FROM min(d.not_before) - clock_timestamp()) INTO next_due_s
    FROM clientmgr.delayed_message_t AS d WHERE d.group_id IS NULL AND d.topic_id = topic_id;
    IF next_due_s IS NULL OR next_due_s > 0 THEN
        RETURN;
    END IF;
    -- One at a time, or two who take turns at the rows would append later ones first.
    IF NOT pg_try_advisory_xact_lock(6583659, topic_id) THEN -- "due"
        next_due_s := 0.05;
        RETURN;
    END IF;
    due := ARRAY(
        SELECT d.id FROM clientmgr.delayed_message_t AS d
        WHERE d.group_id IS NULL AND d.topic_id = topic_id AND d.not_before <= clock_timestamp()
        ORDER BY d.not_before, d.id LIMIT most FOR UPDATE
    );
    IF cardinality(due) > 0 THEN
        SELECT * INTO reserved FROM clientmgr.reserve_offsets(
            (SELECT c.topic FROM clientmgr.log_counter AS c WHERE c.id = topic_id), cardinality(due),
            gen_random_uuid(), NULL
        );
        INSERT INTO clientmgr.outbox_message_t (
            topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, user_id, payload, attributes
        )
        SELECT topic_id, clientmgr.partition_of(d.host_id, reserved.total_partitions),
            reserved.first_offset + r.position - 1, reserved.first_offset + r.position - 1, gen_random_uuid(),
            d.host_id, d.user_id, d.payload, d.attributes
        FROM unnest(due) WITH ORDINALITY AS r (id, position)
        JOIN clientmgr.delayed_message_t AS d ON d.id = r.id;
        DELETE FROM clientmgr.delayed_message_t AS d WHERE d.id = ANY (due);
        appended := cardinality(due);
    END IF;
    SELECT extract(epoch FROM min(d.not_before) - clock_timestamp()) INTO next_due_s
    FROM clientmgr.delayed_message_t AS d WHERE d.group_id IS NULL AND d.topic_id = topic_id;
END
$$;

-- The JSON that a payload is; null: it is none, or none that jsonb can hold.
CREATE FUNCTION clientmgr.json_of(payload bytea) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

-- Dead letters as the specification names them.
CREATE VIEW clientmgr.dead_letters AS
SELECT d.id, c.topic, d.group_id, d.c_offset, d.partition_id, d.transaction_id, d.host_id, d.user_id,
    clientmgr.json_of(d.payload) AS payload, d.payload AS payload_bytes, d.attributes,
    d.error_class, d.exception, d.attempts, d.published_at, d.failed_at AS created_dt, d.replayed_at
FROM clientmgr.dead_letter_queue AS d
JOIN clientmgr.log_counter AS c ON c.id = d.topic_id;

REVOKE EXECUTE ON FUNCTION clientmgr.append_pending (), clientmgr.append_pending_of (integer, text),
    clientmgr.append_due (integer, integer),
    clientmgr.stage_messages (text, text [], text [], bytea [], text [], timestamptz [], bytea []) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clientmgr.append_due (integer, integer),
    clientmgr.stage_messages (text, text [], text [], bytea [], text [], timestamptz [], bytea []) TO clientmgr_writer;
GRANT SELECT, INSERT ON clientmgr.pending_publish_t TO clientmgr_writer;
GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.publish_keys TO clientmgr_writer;
GRANT SELECT ON clientmgr.pending_publish_t, clientmgr.publish_keys, clientmgr.dead_letters TO clientmgr_reader;
