-- Contacts that are deleted in BigQuery and still have devices here, found by comparing all of both every night.

-- On their way to client-manager.contact-deletion: a row is deleted in the transaction that publishes it, because a
-- deleted contact's id must not stay. A search replaces what the last one left.
CREATE TABLE clientmgr.unerased_contacts (
    customer_id bigint NOT NULL,
    contact_id bigint NOT NULL,
    deleted_at timestamptz NOT NULL,
    found_at timestamptz NOT NULL,
    PRIMARY KEY (customer_id, contact_id, deleted_at)
);

-- Where Spark's tasks put their rows; see 0001_orphans.sql.
CREATE UNLOGGED TABLE clientmgr.unerased_contacts_staged (
    LIKE clientmgr.unerased_contacts,
    attempt_id text NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX unerased_contacts_staged_by_attempt ON clientmgr.unerased_contacts_staged (attempt_id);

-- What each search found of a customer. Numbers only.
CREATE TABLE clientmgr.contact_deletion_reconciliations (
    customer_id bigint NOT NULL,
    run_id text NOT NULL,
    searched_at timestamptz NOT NULL,
    -- Contacts, and those among them that the hourly fetch can't be on its way to.
    found bigint NOT NULL,
    missed bigint NOT NULL,
    -- Messages: a contact that was deleted twice has two.
    published bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (customer_id, run_id)
);
CREATE INDEX contact_deletion_reconciliations_newest
    ON clientmgr.contact_deletion_reconciliations (customer_id, searched_at DESC);

-- Customers whose deletions are missed, or published and not carried out: every search has missed contacts since the last
-- that had none, for two nights. Two searches count as two nights from twelve hours on; one that somebody starts by hand
-- an hour later does not.
CREATE VIEW clientmgr.contact_deletions_missed AS
SELECT
    r.customer_id,
    (array_agg(r.missed ORDER BY r.searched_at DESC))[1] AS missed,
    min(r.searched_at) AS since
FROM clientmgr.contact_deletion_reconciliations AS r
JOIN clientmgr.tenants AS t ON t.customer_id = r.customer_id AND t.status = 'active'
WHERE NOT EXISTS (
    SELECT FROM clientmgr.contact_deletion_reconciliations AS clean
    WHERE clean.customer_id = r.customer_id AND clean.missed = 0 AND clean.searched_at >= r.searched_at
)
GROUP BY r.customer_id
HAVING max(r.searched_at) - min(r.searched_at) >= interval '12 hours';

GRANT SELECT, INSERT, UPDATE, DELETE ON
    clientmgr.unerased_contacts, clientmgr.unerased_contacts_staged, clientmgr.contact_deletion_reconciliations
    TO clientmgr_writer;
GRANT SELECT ON clientmgr.unerased_contacts, clientmgr.contact_deletion_reconciliations TO clientmgr_reader;
GRANT SELECT ON clientmgr.contact_deletions_missed TO clientmgr_reader, clientmgr_writer;
