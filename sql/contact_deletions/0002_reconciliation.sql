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

GRANT SELECT, INSERT, UPDATE, DELETE ON
    clientmgr.unerased_contacts, clientmgr.unerased_contacts_staged, clientmgr.contact_deletion_reconciliations
    TO clientmgr_writer;
GRANT SELECT ON clientmgr.unerased_contacts, clientmgr.contact_deletion_reconciliations TO clientmgr_reader;
