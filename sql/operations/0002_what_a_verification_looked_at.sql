-- "Nothing found" says little without how much was looked at. Null: from before this was kept.
ALTER TABLE clientmgr.audit_verifications
    ADD COLUMN rows bigint, ADD COLUMN chains bigint, ADD COLUMN anchors bigint;
