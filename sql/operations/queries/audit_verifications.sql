-- name: record
INSERT INTO clientmgr.audit_verifications (findings, first_findings)
VALUES (%(findings)s, %(first_findings)s::jsonb);
