-- Chains never end: the record of where one ends is moved by its trigger and never deleted, not even by the owner.
CREATE TRIGGER audit_heads_kept BEFORE DELETE OR TRUNCATE ON clientmgr.audit_heads
    FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.refuse_audit_change();
