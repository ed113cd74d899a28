-- Times and offsets: seeking to a moment, dropping what is too old, and telling the log how far a subscription has come.

-- The first offset of a topic's log that was published at `moment` or later. Times grow with the offsets, since each is
-- taken while the topic's counter is locked: a binary search over the primary key, without an index for times.
CREATE FUNCTION clientmgr.gateway_offset_at(of_topic integer, moment timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
    low bigint;
    high bigint;
    middle bigint;
    at_middle record;
BEGIN
    SELECT c.next_offset INTO high FROM clientmgr.log_counter AS c WHERE c.id = of_topic;
    SELECT min(m.c_offset) INTO low FROM clientmgr.outbox_message_t AS m WHERE m.topic_id = of_topic;
    low := coalesce(low, high);
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT m.c_offset, m.published_at INTO at_middle FROM clientmgr.outbox_message_t AS m
        WHERE m.topic_id = of_topic AND m.c_offset >= middle ORDER BY m.c_offset LIMIT 1;
        IF at_middle.c_offset IS NULL OR at_middle.published_at >= moment THEN
            high := middle;
        ELSE
            low := at_middle.c_offset + 1;
        END IF;
    END LOOP;
    RETURN low;
END
$$;

-- Tells the log's retention how far the subscription has come.
CREATE FUNCTION clientmgr.gateway_report_progress(s clientmgr.gateway_subscriptions) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    passed bigint;
BEGIN
    SELECT least(c.next_offset, (
        SELECT d.c_offset FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id
        ORDER BY d.c_offset LIMIT 1
    )) INTO passed FROM clientmgr.gateway_cursors AS c WHERE c.subscription_id = s.id;
    IF s.retain_acked THEN
        passed := least(passed, clientmgr.gateway_offset_at(s.topic_id, now() - s.retention));
    END IF;
    UPDATE clientmgr.consumer_offsets AS o SET next_offset = passed, updated_at = now()
    WHERE o.group_id = s.name AND o.topic_id = s.topic_id AND o.next_offset <> passed;
END
$$;

-- Makes the subscription deliver what was published from `moment` on, and nothing older. Acknowledged messages come
-- again where the subscription or the topic keeps them; the log of a topic that the API did not make always does.
CREATE FUNCTION clientmgr.gateway_seek(subscription_name text, moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    target bigint;
    keeps interval;
    freed text[];
BEGIN
    s := clientmgr.gateway_lock(subscription_name);
    SELECT CASE WHEN t.topic_id IS NULL THEN interval '100 years'
        ELSE greatest(t.retention, CASE WHEN s.retain_acked THEN s.retention END) END
    INTO keeps FROM clientmgr.log_counter AS c LEFT JOIN clientmgr.gateway_topics AS t ON t.topic_id = c.id
    WHERE c.id = s.topic_id;
    IF keeps IS NOT NULL THEN
        DELETE FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id;
        target := clientmgr.gateway_offset_at(s.topic_id, greatest(moment, now() - keeps));
        UPDATE clientmgr.gateway_cursors AS c SET next_offset = target WHERE c.subscription_id = s.id;
    ELSE
        target := clientmgr.gateway_offset_at(s.topic_id, moment);
        WITH gone AS (
            DELETE FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id AND d.c_offset < target
            RETURNING d.ordering_key
        )
        SELECT array_agg(DISTINCT g.ordering_key) INTO freed FROM gone AS g;
        PERFORM clientmgr.gateway_promote(s.id, freed);
        UPDATE clientmgr.gateway_cursors AS c SET next_offset = target
        WHERE c.subscription_id = s.id AND c.next_offset < target;
    END IF;
    PERFORM clientmgr.gateway_report_progress(s);
END
$$;

-- Drops what is older than the subscription keeps, and reports how far it has come.
CREATE FUNCTION clientmgr.gateway_tidy(subscription_name text) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    s clientmgr.gateway_subscriptions;
    floor_offset bigint;
    freed text[];
BEGIN
    s := clientmgr.gateway_lock(subscription_name);
    floor_offset := clientmgr.gateway_offset_at(s.topic_id, now() - s.retention);
    WITH gone AS (
        DELETE FROM clientmgr.gateway_deliveries AS d WHERE d.subscription_id = s.id AND d.c_offset < floor_offset
        RETURNING d.ordering_key
    )
    SELECT array_agg(DISTINCT g.ordering_key) INTO freed FROM gone AS g;
    IF freed IS NOT NULL THEN
        PERFORM clientmgr.gateway_promote(s.id, freed);
    END IF;
    UPDATE clientmgr.gateway_cursors AS c SET next_offset = floor_offset
    WHERE c.subscription_id = s.id AND c.next_offset < floor_offset;
    PERFORM clientmgr.gateway_report_progress(s);
END
$$;
