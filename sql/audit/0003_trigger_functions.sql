-- A trigger's function is checked for EXECUTE when the trigger is made, not when it fires. With PUBLIC's right, which
-- every function begins with, a reader could put the one that moves the chains' ends, as their owner, on a temporary
-- table of its own, and move them.
REVOKE EXECUTE ON FUNCTION clientmgr.append_to_audit_chain (), clientmgr.refuse_audit_change () FROM PUBLIC;
