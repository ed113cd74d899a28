-- What became of a failed message that somebody had delivered again: where it went, so that its outcome can be looked up.
-- The failed message itself stays where it is, and is marked there. Nothing here is about a person.
CREATE TABLE clientmgr.failure_replays (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ref text NOT NULL, -- d17: dead letter 17; e5-123: offset 123 of the error topic with id 5
    topic_id integer NOT NULL REFERENCES clientmgr.log_counter, -- where it went
    c_offset bigint, -- and its place there; null: to Google Pub/Sub
    subscription text, -- who alone gets it; null: whoever reads the topic
    changed text[] NOT NULL DEFAULT '{}', -- the fields that were edited, by name
    errors_topic_id integer, -- the topic's error topic, and where that ended then: who fails again is behind it
    errors_from bigint,
    replayed_by text NOT NULL,
    replayed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX failure_replays_by_ref ON clientmgr.failure_replays (ref, id);

GRANT SELECT, INSERT, DELETE ON clientmgr.failure_replays TO clientmgr_writer;
GRANT SELECT ON clientmgr.failure_replays TO clientmgr_reader;
