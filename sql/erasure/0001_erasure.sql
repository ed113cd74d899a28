-- What the sweep that erases deleted contacts, devices and accounts from our own tables remembers of itself.

-- Each sweep. What was deleted before a finished one began is erased.
CREATE TABLE clientmgr.erasure_sweeps (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz, -- null: under way, or it was killed
    counts jsonb NOT NULL DEFAULT '{}', -- by place
    error text NOT NULL DEFAULT ''
);
CREATE INDEX erasure_sweeps_finished ON clientmgr.erasure_sweeps (started_at) WHERE finished_at IS NOT NULL;

-- Up to where each topic was compared with all deletions. Older messages need a look at newer deletions only.
CREATE TABLE clientmgr.erasure_progress (
    topic_id integer PRIMARY KEY REFERENCES clientmgr.log_counter,
    swept_to bigint NOT NULL
);

-- Messages that name another customer than the one in their label: they can't be found by it. The column is not called
-- customer_id: it must outlive the customer's other data, until what it points at is erased.
CREATE TABLE clientmgr.erasure_strays (
    named_customer bigint NOT NULL,
    topic_id integer NOT NULL,
    c_offset bigint NOT NULL,
    PRIMARY KEY (named_customer, topic_id, c_offset)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.erasure_sweeps, clientmgr.erasure_progress, clientmgr.erasure_strays
TO clientmgr_writer;
GRANT SELECT ON clientmgr.erasure_sweeps, clientmgr.erasure_progress, clientmgr.erasure_strays TO clientmgr_reader;
