-- One query for each thing that must never happen. Each is true of every snapshot, not only of the end of a run, and
-- gives how often it happened and an example.

-- name: lost
SELECT count(*), min(format('message %s of transaction %s', seq, tx)) FROM (
    SELECT tx, seq FROM faults.expected
    EXCEPT SELECT tx, seq FROM faults.handled
    EXCEPT SELECT tx, seq FROM faults.dead
    EXCEPT SELECT tx, seq FROM faults.still_to_come
) AS lost;

-- name: doubled
SELECT count(*), min(format('message %s of transaction %s, %s times', seq, tx, times)) FROM (
    SELECT tx, seq, count(*) AS times FROM (
        SELECT tx, seq FROM faults.handled UNION ALL SELECT tx, seq FROM faults.dead
    ) AS ended GROUP BY tx, seq HAVING count(*) > 1
) AS doubled;

-- name: invented
SELECT count(*), min(format('message %s of transaction %s, which was rolled back', seq, tx)) FROM (
    SELECT tx, seq FROM faults.handled
    UNION SELECT tx, seq FROM faults.dead
    UNION SELECT tx, seq FROM faults.still_to_come
    EXCEPT SELECT tx, seq FROM faults.expected
) AS invented;

-- name: out_of_order
-- By offset within a tenant; and, not trusting offsets, by what each publisher did one after the other.
SELECT count(*), min(format('tenant %s: offset %s after %s', tenant, message_id, offset_before)) FROM (
    SELECT h.tenant, h.message_id, h.seq, p.number,
        lag(h.message_id) OVER handling AS offset_before,
        lag(p.number) OVER own AS number_before, lag(h.seq) OVER own AS seq_before
    FROM faults.handled_in_place AS h JOIN faults.published AS p USING (tx)
    WINDOW handling AS (PARTITION BY h.tenant ORDER BY h.id), own AS (PARTITION BY h.tenant, p.publisher ORDER BY h.id)
) AS handled
WHERE message_id <= offset_before OR (number, seq) <= (number_before, seq_before);

-- name: split
SELECT count(*), min(format('transaction %s: in %s parts', tx, parts)) FROM (
    SELECT tx, count(DISTINCT part) AS parts FROM (
        SELECT tx, xact::text AS part FROM faults.handled_in_place
        UNION ALL
        SELECT tx, 'dead' FROM faults.dead AS d
        WHERE NOT EXISTS (SELECT FROM faults.retried AS r WHERE r.tx = d.tx AND r.seq = d.seq)
    ) AS parts GROUP BY tx HAVING count(DISTINCT part) > 1
) AS split;

-- name: wrongly_dead
SELECT count(*), min(format('message %s of transaction %s', seq, tx))
FROM faults.dead JOIN faults.published AS p USING (tx) WHERE NOT p.poison;

-- name: poison_handled
SELECT count(*), min(format('message %s of transaction %s', seq, tx))
FROM faults.handled JOIN faults.published AS p USING (tx) WHERE p.poison;

-- name: gap
-- Count = highest offset, for both topics.
SELECT count(*), min(format('topic %s: %s messages, highest offset %s', topic, messages, highest)) FROM (
    SELECT c.topic,
        (SELECT count(*) FROM clientmgr.outbox_message_t AS m WHERE m.topic_id = c.id)
        + CASE c.topic WHEN 'faults' THEN (SELECT coalesce(sum(t.messages), 0) FROM faults.trimmed AS t) ELSE 0 END
            AS messages,
        greatest(
            c.next_offset - 1, (SELECT max(m.c_offset) FROM clientmgr.outbox_message_t AS m WHERE m.topic_id = c.id)
        ) AS highest
    FROM clientmgr.log_counter AS c WHERE c.topic IN ('faults', 'faults-echo')
) AS logs WHERE messages <> highest;

-- name: wrongly_echoed
-- What a handler published is there exactly as often as the message was handled: once if it asked for it.
SELECT count(*), min(format('message %s: wanted %s, found %s', key, wanted, found)) FROM (
    SELECT key, sum(wanted) AS wanted, sum(found) AS found FROM (
        SELECT format('%s:%s', h.tx, h.seq) AS key, 1 AS wanted, 0 AS found
        FROM (SELECT DISTINCT tx, seq FROM faults.handled) AS h JOIN faults.published AS p USING (tx)
        WHERE h.seq = ANY (p.echoes)
        UNION ALL
        SELECT m.user_id, 0, 1 FROM clientmgr.outbox_message_t AS m
        JOIN clientmgr.log_counter AS c ON c.id = m.topic_id WHERE c.topic = 'faults-echo'
    ) AS echoes GROUP BY key
) AS echoes WHERE wanted <> found;

-- name: unread
SELECT count(*) FROM faults.still_to_come;

-- name: tally
SELECT
    (SELECT count(*) FROM faults.published) AS transactions,
    (SELECT count(*) FROM faults.expected) AS messages,
    (SELECT count(*) FROM faults.published WHERE poison) AS poison_transactions,
    (SELECT count(*) FROM faults.handled) AS handled,
    (SELECT count(*) FROM faults.dead) AS dead,
    (SELECT count(*) FROM faults.retried) AS retried,
    (SELECT coalesce(sum(messages), 0) FROM faults.trimmed)::bigint AS trimmed,
    (SELECT last_value FROM faults.rolled_back) AS rolled_back,
    (SELECT last_value FROM faults.slow_commits) AS slow_commits,
    (SELECT last_value FROM faults.transient_failures) AS transient_failures;
