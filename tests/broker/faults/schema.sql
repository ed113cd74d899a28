-- What publishers say they committed, what handlers did, and views that put the broker's tables beside them.
-- handled has no unique key on purpose: a message that is handled twice is to be seen, not refused.

CREATE SCHEMA faults;

-- The business rows. One per transaction, committed or not together with its messages.
CREATE TABLE faults.published (
    tx uuid PRIMARY KEY,
    tenant text NOT NULL,
    publisher text NOT NULL, -- one life of one process
    number bigint NOT NULL, -- its transactions, in its order
    size integer NOT NULL,
    poison boolean NOT NULL,
    echoes integer[] NOT NULL, -- the messages whose handler must publish something
    -- False: the row was committed before its messages were published, and nobody could say yet that they were.
    confirmed boolean NOT NULL DEFAULT true
);

-- A row for each message that a handler has done. A partition's commits are serial, so ids show the order of handling.
CREATE TABLE faults.handled (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tx uuid NOT NULL,
    seq integer NOT NULL,
    tenant text NOT NULL,
    message_id bigint NOT NULL, -- its offset
    xact xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX handled_by_message ON faults.handled (tx, seq);

-- Messages that a handler asked for again: from then on they are on their own, later than their transaction.
CREATE TABLE faults.retried (tx uuid NOT NULL, seq integer NOT NULL);
CREATE INDEX retried_by_message ON faults.retried (tx, seq);

-- Counted by sequences, because those remember what was rolled back.
CREATE SEQUENCE faults.rolled_back MINVALUE 0 START 0;
CREATE SEQUENCE faults.slow_commits MINVALUE 0 START 0;
CREATE SEQUENCE faults.transient_failures MINVALUE 0 START 0;

CREATE TABLE faults.trimmed (messages bigint NOT NULL);
CREATE FUNCTION faults.count_trimmed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO faults.trimmed SELECT count(*) FROM removed AS m
    JOIN clientmgr.log_counter AS c ON c.id = m.topic_id WHERE c.topic = 'faults';
    RETURN NULL;
END
$$;
CREATE TRIGGER count_trimmed AFTER DELETE ON clientmgr.outbox_message_t
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION faults.count_trimmed();

GRANT USAGE ON SCHEMA faults TO clientmgr_writer;
GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA faults TO clientmgr_writer;
GRANT UPDATE ON faults.published TO clientmgr_writer;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA faults TO clientmgr_writer;

CREATE VIEW faults.dead AS
SELECT split_part(user_id, ':', 1)::uuid AS tx, split_part(user_id, ':', 2)::integer AS seq
FROM clientmgr.dead_letter_queue WHERE group_id = 'faults-group';

-- Not yet read, held, or waiting for its retry.
CREATE VIEW faults.still_to_come AS
SELECT split_part(m.user_id, ':', 1)::uuid AS tx, split_part(m.user_id, ':', 2)::integer AS seq
FROM clientmgr.consumer_offsets AS o
JOIN clientmgr.outbox_message_t AS m USING (topic_id, partition_id)
WHERE o.group_id = 'faults-group' AND m.c_offset >= o.next_offset
UNION ALL
SELECT split_part(user_id, ':', 1)::uuid, split_part(user_id, ':', 2)::integer
FROM clientmgr.delayed_message_t WHERE group_id = 'faults-group'
UNION ALL
SELECT split_part(h.user_id, ':', 1)::uuid, split_part(h.user_id, ':', 2)::integer
FROM clientmgr.held_message_t AS h JOIN clientmgr.held_queues AS q ON q.id = h.queue_id
WHERE q.group_id = 'faults-group';

-- What must have an end. Of a transaction without confirmation: all of it, or nothing.
CREATE VIEW faults.expected AS
SELECT p.tx, p.poison, seq FROM faults.published AS p CROSS JOIN LATERAL generate_series(1, p.size) AS seq
WHERE p.confirmed OR p.tx IN (
    SELECT tx FROM faults.handled UNION SELECT tx FROM faults.dead UNION SELECT tx FROM faults.still_to_come
);

-- The first time that each message was handled. What its handler had asked for again is not in its place any more.
CREATE VIEW faults.handled_in_place AS
SELECT DISTINCT ON (tx, seq) * FROM faults.handled AS h
WHERE NOT EXISTS (SELECT FROM faults.retried AS r WHERE r.tx = h.tx AND r.seq = h.seq)
ORDER BY tx, seq, id;
