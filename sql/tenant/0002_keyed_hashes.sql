-- What outlives a deletion knows contacts, devices and tokens by keyed hashes alone (clientmgr/base/keyed_hashes.py): the
-- tables below can't be read backwards, and a late event is recognised all the same. And what the new rules of deletion
-- need: every link with its version, merges of contacts, verdicts by token. A tenant that has rows needs the key in its
-- session (clientmgr/tenants/schema_manager.py sets it); an empty one needs none.

ALTER TABLE :"schema".devices ADD COLUMN device_hash bytea;
ALTER TABLE :"schema".devices RENAME COLUMN push_token_digest TO push_token_hash;
UPDATE :"schema".devices AS d SET
    device_hash = clientmgr.device_hash(d.tableoid, d.application_code, d.client_id),
    push_token_hash = clientmgr.token_hash(d.tableoid, d.application_code, d.push_token_hash);
-- Null where a row was put in by hand: nothing but the application can make a hash. The device's next event sets it.
CREATE UNIQUE INDEX devices_by_hash ON :"schema".devices (device_hash);

ALTER TABLE :"schema".device_tombstones RENAME TO device_tombstones_in_clear;
ALTER TABLE :"schema".contact_tombstones RENAME TO contact_tombstones_in_clear;
ALTER TABLE :"schema".contact_links RENAME TO contact_links_in_clear;
ALTER TABLE :"schema".push_token_claims RENAME TO push_token_claims_in_clear;

-- Up to when a device is deleted. The two have their own reasons: a link that arrives late may take back what a contact's
-- deletion did, and never what the device's own did.
CREATE TABLE :"schema".device_tombstones (
    device_hash bytea CONSTRAINT device_tombstones_key PRIMARY KEY,
    deleted_version bigint NOT NULL DEFAULT 0, -- by its own deletion
    contact_deleted_version bigint NOT NULL DEFAULT 0, -- by the deletion of the contact it belonged to
    recorded_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO :"schema".device_tombstones (device_hash, deleted_version, recorded_at)
SELECT clientmgr.device_hash(t.tableoid, t.application_code, t.client_id), t.deleted_version, t.recorded_at
FROM :"schema".device_tombstones_in_clear AS t;

-- Every deletion of a contact: which devices go depends on the moment.
CREATE TABLE :"schema".contact_tombstones (
    contact_hash bytea NOT NULL,
    deleted_version bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT contact_tombstones_key PRIMARY KEY (contact_hash, deleted_version)
);
INSERT INTO :"schema".contact_tombstones (contact_hash, deleted_version, recorded_at)
SELECT clientmgr.contact_hash(t.tableoid, t.contact_id), t.deleted_version, t.recorded_at
FROM :"schema".contact_tombstones_in_clear AS t;

-- Every link of a device to a contact, also those that another one has followed; and every unlink, with an empty hash.
CREATE TABLE :"schema".contact_links (
    device_hash bytea NOT NULL,
    linked_version bigint NOT NULL,
    contact_hash bytea NOT NULL,
    contact_id bigint, -- null: the contact is deleted, or there is none
    CONSTRAINT contact_links_key PRIMARY KEY (device_hash, linked_version, contact_hash)
);
CREATE INDEX contact_links_by_contact ON :"schema".contact_links (contact_hash) WHERE contact_hash <> '';
INSERT INTO :"schema".contact_links (device_hash, linked_version, contact_hash, contact_id)
SELECT clientmgr.device_hash(l.tableoid, l.application_code, l.client_id), l.linked_version,
    clientmgr.contact_hash(l.tableoid, l.contact_id), CASE WHEN t.contact_id IS NULL THEN l.contact_id END
FROM :"schema".contact_links_in_clear AS l
LEFT JOIN :"schema".contact_tombstones_in_clear AS t USING (contact_id);

-- Links of the one contact up to this version are links of the other.
CREATE TABLE :"schema".contact_merges (
    from_contact_hash bytea NOT NULL,
    merged_version bigint NOT NULL,
    into_contact_hash bytea NOT NULL,
    into_contact_id bigint, -- null: the contact is deleted
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (from_contact_hash, merged_version, into_contact_hash)
);
CREATE INDEX contact_merges_by_into ON :"schema".contact_merges (into_contact_hash);

-- Who claimed a push token last. It outlives the device's own use of the token, so that an older claim that arrives late
-- finds the newer one.
CREATE TABLE :"schema".push_token_claims (
    token_hash bytea CONSTRAINT push_token_claims_key PRIMARY KEY,
    device_hash bytea NOT NULL,
    claimed_version bigint NOT NULL
);
INSERT INTO :"schema".push_token_claims (token_hash, device_hash, claimed_version)
SELECT clientmgr.token_hash(c.tableoid, c.application_code, c.token_digest),
    clientmgr.device_hash(c.tableoid, c.application_code, c.client_id), c.claimed_version
FROM :"schema".push_token_claims_in_clear AS c;

-- The newest verdict on a push token, whoever holds it: it may be here before the token, or the token may never come.
CREATE TABLE :"schema".push_token_verdicts (
    token_hash bytea PRIMARY KEY,
    status text NOT NULL CHECK (status IN ('valid', 'invalid')),
    verdict_version bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);

DROP TABLE :"schema".device_tombstones_in_clear, :"schema".contact_tombstones_in_clear,
    :"schema".contact_links_in_clear, :"schema".push_token_claims_in_clear;
