-- What the batch work finds before it acts on it, and what went wrong on the way.

-- Devices that had no contact for longer than the threshold when somebody looked. `orphan_deletions` looks again.
CREATE TABLE clientmgr.orphan_candidates (
    customer_id bigint NOT NULL,
    application_code text NOT NULL,
    client_id text NOT NULL,
    orphaned_since timestamptz NOT NULL,
    found_at timestamptz NOT NULL,
    PRIMARY KEY (customer_id, application_code, client_id)
);

-- Where Spark's tasks put their rows. A task may run twice or die half-way, so its rows count only once the driver has
-- named the attempt (clientmgr_dagster/spark/results_writer.py). Unlogged: after a crash the work is done again anyway.
CREATE UNLOGGED TABLE clientmgr.orphan_candidates_staged (
    LIKE clientmgr.orphan_candidates,
    attempt_id text NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX orphan_candidates_staged_by_attempt ON clientmgr.orphan_candidates_staged (attempt_id);

-- When a tenant was last looked at, and how its devices stood then: the guard's denominator, and what tells a tenant
-- without orphans from one that nobody has looked at.
CREATE TABLE clientmgr.orphan_searches (
    customer_id bigint PRIMARY KEY,
    searched_at timestamptz NOT NULL,
    threshold_days double precision NOT NULL,
    candidates bigint NOT NULL,
    run_id text NOT NULL
);

-- What became of a tenant's orphans in a run.
CREATE TABLE clientmgr.orphan_deletion_results (
    run_id text NOT NULL,
    customer_id bigint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('deleted', 'dry run', 'excluded', 'guarded', 'not searched', 'failed')),
    devices bigint,
    candidates bigint NOT NULL DEFAULT 0,
    deleted bigint NOT NULL DEFAULT 0,
    spared bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 1,
    error text,
    finished_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, customer_id)
);
CREATE INDEX orphan_deletion_results_by_customer
    ON clientmgr.orphan_deletion_results (customer_id, finished_at DESC);

-- Tenants that a run could not read, by the asset that wanted to.
CREATE TABLE clientmgr.batch_failures (
    run_id text NOT NULL,
    step text NOT NULL,
    customer_id bigint NOT NULL,
    error text NOT NULL,
    failed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, step, customer_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON
    clientmgr.orphan_candidates, clientmgr.orphan_candidates_staged, clientmgr.orphan_searches,
    clientmgr.orphan_deletion_results, clientmgr.batch_failures
    TO clientmgr_writer;
GRANT SELECT ON
    clientmgr.orphan_candidates, clientmgr.orphan_searches, clientmgr.orphan_deletion_results,
    clientmgr.batch_failures
    TO clientmgr_reader;
