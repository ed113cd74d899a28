-- How much the system did, a row a minute for a day: the charts of the dashboard's overview. Totals only grow, so two
-- rows make a rate, also where some between them are missing. One process takes the samples (the gateway); several do no
-- harm.
CREATE TABLE clientmgr.samples (
    at timestamptz PRIMARY KEY, -- to the minute
    events bigint NOT NULL, -- messages of the writer's topic, ever
    sends bigint NOT NULL, -- messages for providers, ever
    errors bigint NOT NULL, -- messages of the error topics, ever
    dead_letters bigint NOT NULL, -- since samples are taken
    last_letter bigint NOT NULL, -- the newest of them
    unread bigint NOT NULL,
    oldest_unread_s double precision NOT NULL -- of the subscription that is furthest behind
);

GRANT SELECT, INSERT, DELETE ON clientmgr.samples TO clientmgr_writer;
GRANT SELECT ON clientmgr.samples TO clientmgr_reader;
