-- Subscriptions that somebody has paused: nobody claims anything of them until they are resumed. Everything waits where it
-- is, with the attempts that it has had.
CREATE TABLE clientmgr.paused_subscriptions (
    group_id text PRIMARY KEY,
    reason text NOT NULL,
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

GRANT SELECT, INSERT, DELETE ON clientmgr.paused_subscriptions TO clientmgr_writer;
GRANT SELECT ON clientmgr.paused_subscriptions TO clientmgr_reader;
