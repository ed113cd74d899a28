-- When the whole audit log was last verified, and what came of it: for the metrics and whoever asks. It proves nothing by
-- itself; `clientmgr audit verify` does.
CREATE TABLE clientmgr.audit_verifications (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    verified_at timestamptz NOT NULL DEFAULT now(),
    findings bigint NOT NULL,
    first_findings jsonb NOT NULL DEFAULT '[]'
);
CREATE INDEX audit_verifications_by_time ON clientmgr.audit_verifications (verified_at);

GRANT SELECT, INSERT ON clientmgr.audit_verifications TO clientmgr_writer;
GRANT SELECT ON clientmgr.audit_verifications TO clientmgr_reader;
