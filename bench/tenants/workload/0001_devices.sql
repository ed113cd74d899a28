-- What the tenants benchmark creates: sql/tenant/ as it was when the peers' models were written. A copy that stays as it
-- is, because every variant must do the same work, and results of different releases are to be compared.
-- :"schema" is the tenant's schema, quoted: psql -v schema=tenant_123 -f … runs this file as it stands.
-- A version is the event's occurredAt in epoch milliseconds; 0: no event has set this part yet.

CREATE TABLE :"schema".devices (
    application_code text NOT NULL,
    client_id text NOT NULL,
    hardware_id text,
    contact_id bigint,
    platform text,
    provider text NOT NULL DEFAULT 'none' CHECK (provider IN ('apple', 'fcm', 'huawei', 'vapid', 'none')),
    application_version text,
    os_version text,
    device_model text,
    sdk_version text,
    language text,
    timezone text,
    push_enabled boolean,
    push_settings jsonb,
    push_token text,
    push_token_kind text CHECK (push_token_kind IN ('apns', 'fcm_token', 'fcm_fid', 'hms', 'webpush')),
    push_token_status text NOT NULL DEFAULT 'none'
        CHECK (push_token_status IN ('none', 'valid', 'invalid', 'superseded')),
    web_push jsonb,
    attributes jsonb,
    orphaned_since timestamptz,
    last_seen_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    -- An info event carries only some fields, so each field has a version of its own: {"language": 1763248000123}.
    info_versions jsonb NOT NULL DEFAULT '{}',
    push_token_version bigint NOT NULL DEFAULT 0,
    -- SHA-256 of the token, or of a web push endpoint. It stays when the token is superseded: of two tokens set in one
    -- millisecond the greater digest wins, also after the token itself is gone.
    push_token_digest bytea,
    push_token_status_version bigint NOT NULL DEFAULT 0,
    contact_version bigint NOT NULL DEFAULT 0,
    last_seen_version bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (application_code, client_id)
) WITH (fillfactor = 85); -- room for updates on the same page: no indexed column changes in most events

CREATE INDEX devices_by_contact ON :"schema".devices (contact_id) WHERE contact_id IS NOT NULL;
CREATE INDEX devices_orphaned ON :"schema".devices (orphaned_since) WHERE orphaned_since IS NOT NULL;

-- A deleted device: events up to `deleted_version` can't bring it back. Kept longer than any transport keeps messages.
CREATE TABLE :"schema".device_tombstones (
    application_code text NOT NULL,
    client_id text NOT NULL,
    deleted_version bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (application_code, client_id)
);

-- A deleted contact: no late link can give it a device again.
CREATE TABLE :"schema".contact_tombstones (
    contact_id bigint PRIMARY KEY,
    deleted_version bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);

-- Which devices a contact was ever linked to: the contact's deletion deletes all of them, also those that have another
-- contact by then (clientmgr/devices/decide.py says why). Kept as long as its tombstone: a contact may be deleted twice.
CREATE TABLE :"schema".contact_links (
    contact_id bigint NOT NULL,
    application_code text NOT NULL,
    client_id text NOT NULL,
    linked_version bigint NOT NULL,
    PRIMARY KEY (contact_id, application_code, client_id)
);

-- Who claimed a push token last. It outlives the device's own use of the token, so that an older claim that arrives late
-- finds the newer one. Tokens are keyed by digest: a web push endpoint may be longer than an index entry can be.
CREATE TABLE :"schema".push_token_claims (
    application_code text NOT NULL,
    token_digest bytea NOT NULL,
    client_id text NOT NULL,
    claimed_version bigint NOT NULL,
    PRIMARY KEY (application_code, token_digest)
);
