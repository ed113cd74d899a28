-- name: ensure_grants
-- Only where something is missing: a GRANT writes even when it changes nothing. A migration of chosen folders may not have
-- brought the functions.
DO $$
BEGIN
    IF to_regrole('clientmgr_publisher') IS NOT NULL AND to_regproc('clientmgr.publish_batch') IS NOT NULL
        AND NOT has_function_privilege('clientmgr_publisher', 'clientmgr.publish_batch(text, jsonb)', 'EXECUTE')
    THEN
        GRANT USAGE ON SCHEMA clientmgr TO clientmgr_publisher;
        GRANT EXECUTE ON FUNCTION clientmgr.publish, clientmgr.publish_bytes, clientmgr.publish_batch
        TO clientmgr_publisher;
    END IF;
END
$$;
