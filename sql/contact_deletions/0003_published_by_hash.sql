-- A deleted contact's id goes when its deletion is published. What stays is a keyed hash (clientmgr/base/keyed_hashes.py):
-- that is enough to know a row of BigQuery that is read again.

-- Published before there were hashes. The next fetch reads those of the overlap again, and they are published once more
-- with the same event id.
DELETE FROM clientmgr.deleted_contacts WHERE published_at IS NOT NULL;

ALTER TABLE clientmgr.deleted_contacts DROP CONSTRAINT deleted_contacts_pkey;
ALTER TABLE clientmgr.deleted_contacts ALTER COLUMN contact_id DROP NOT NULL;
-- Null: found before there were hashes, and not published yet.
ALTER TABLE clientmgr.deleted_contacts ADD COLUMN contact_hash bytea;
ALTER TABLE clientmgr.deleted_contacts ADD CONSTRAINT deleted_contacts_in_clear_until_published
    CHECK ((published_at IS NULL) = (contact_id IS NOT NULL));
-- What is read twice is there once, published or not.
CREATE UNIQUE INDEX deleted_contacts_once ON clientmgr.deleted_contacts (customer_id, contact_hash, deleted_at);

ALTER TABLE clientmgr.deleted_contacts_staged ADD COLUMN contact_hash bytea;
