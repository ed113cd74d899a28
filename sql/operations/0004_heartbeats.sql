-- Signs of life: every process that may write says twice a minute that it runs. A row for each start of each process.
CREATE TABLE clientmgr.heartbeats (
    instance uuid PRIMARY KEY,
    process text NOT NULL, -- its name in the registry of daemons
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_work_at timestamptz, -- when it last dealt with a message; null: not since it started, or it deals with none
    stopped_at timestamptz -- it ended as it should
) WITH (fillfactor = 50);
CREATE INDEX heartbeats_by_process ON clientmgr.heartbeats (process, started_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.heartbeats TO clientmgr_writer;
GRANT SELECT ON clientmgr.heartbeats TO clientmgr_reader;
