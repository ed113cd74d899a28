-- Contacts that customers deleted, on their way from BigQuery to client-manager.contact-deletion.

-- Kept after they are published for as long as BigQuery is read again (CONTACT_DELETION_OVERLAP_HOURS): that is how a row
-- that was read twice is published once.
CREATE TABLE clientmgr.deleted_contacts (
    customer_id bigint NOT NULL,
    contact_id bigint NOT NULL,
    deleted_at timestamptz NOT NULL,
    found_at timestamptz NOT NULL,
    published_at timestamptz,
    PRIMARY KEY (customer_id, contact_id, deleted_at)
);
CREATE INDEX deleted_contacts_unpublished ON clientmgr.deleted_contacts (customer_id, deleted_at, contact_id)
    WHERE published_at IS NULL;

-- Where Spark's tasks put their rows; see 0001_orphans.sql.
CREATE UNLOGGED TABLE clientmgr.deleted_contacts_staged (
    customer_id bigint NOT NULL,
    contact_id bigint NOT NULL,
    deleted_at timestamptz NOT NULL,
    found_at timestamptz NOT NULL,
    attempt_id text NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX deleted_contacts_staged_by_attempt ON clientmgr.deleted_contacts_staged (attempt_id);

-- Up to where a customer's deletions are published. It moves in the transaction that publishes them.
CREATE TABLE clientmgr.contact_deletion_watermarks (
    customer_id bigint PRIMARY KEY,
    deleted_at timestamptz NOT NULL,
    published bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now()
);

GRANT SELECT, INSERT, UPDATE, DELETE ON
    clientmgr.deleted_contacts, clientmgr.deleted_contacts_staged, clientmgr.contact_deletion_watermarks
    TO clientmgr_writer;
GRANT SELECT ON clientmgr.deleted_contacts, clientmgr.contact_deletion_watermarks TO clientmgr_reader;
