-- What somebody has done about a message of an error topic. The log itself is never changed: others may read it too.
CREATE TABLE clientmgr.error_messages_handled (
    topic_id integer NOT NULL REFERENCES clientmgr.log_counter,
    c_offset bigint NOT NULL,
    action text NOT NULL CHECK (action IN ('replayed', 'dropped')),
    handled_by text NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, c_offset)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.error_messages_handled TO clientmgr_writer;
GRANT SELECT ON clientmgr.error_messages_handled TO clientmgr_reader;
