-- What was asked for each customer last, be it registered or not. Requests come late, twice and on two topics that know
-- nothing of each other: whoever acts on one looks here first whether a newer one says otherwise. A row outlives the
-- tenant: it is what keeps an old activation from bringing a deleted customer back.
CREATE TABLE clientmgr.tenant_wishes (
    customer_id bigint PRIMARY KEY CHECK (customer_id BETWEEN 1 AND 999999999999999999),
    wish text NOT NULL CHECK (wish IN ('active', 'deleted')),
    asked_at timestamptz NOT NULL, -- a message's occurredAt, or the moment at which a person asked
    actor text NOT NULL,
    event_id text NOT NULL DEFAULT '',
    updated_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO clientmgr.tenant_wishes (customer_id, wish, asked_at, actor)
SELECT customer_id, CASE WHEN status IN ('deleting', 'deleted') THEN 'deleted' ELSE 'active' END,
    CASE WHEN status IN ('deleting', 'deleted') THEN updated_at ELSE registered_at END, 'migration'
FROM clientmgr.tenants;

GRANT SELECT, INSERT, UPDATE ON clientmgr.tenant_wishes TO clientmgr_ddl;
GRANT SELECT ON clientmgr.tenant_wishes TO clientmgr_writer, clientmgr_reader;
