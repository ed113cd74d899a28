-- name: record
INSERT INTO clientmgr.audit_verifications (findings, first_findings, rows, chains, anchors)
VALUES (%(findings)s, %(first_findings)s::jsonb, %(rows)s, %(chains)s, %(anchors)s);
