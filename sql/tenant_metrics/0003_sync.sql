-- The comparison with DynamoDB: what it says of a tenant, why it could not be made, and which devices differ.
-- 'in sync': nothing was found to differ. 'differs': something was; sync_difference_share says how much.

ALTER TABLE clientmgr.dashboard_tenant_metrics DROP CONSTRAINT dashboard_tenant_metrics_sync_status_check;
ALTER TABLE clientmgr.dashboard_tenant_metrics_history DROP CONSTRAINT dashboard_tenant_metrics_sync_status_check;

UPDATE clientmgr.dashboard_tenant_metrics
SET sync_status = CASE WHEN sync_difference_share = 0 THEN 'in sync' ELSE 'differs' END WHERE sync_status = 'checked';
UPDATE clientmgr.dashboard_tenant_metrics_history
SET sync_status = CASE WHEN sync_difference_share = 0 THEN 'in sync' ELSE 'differs' END WHERE sync_status = 'checked';

ALTER TABLE clientmgr.dashboard_tenant_metrics
    ADD CONSTRAINT dashboard_tenant_metrics_sync_status_check
    CHECK (sync_status IN ('not checked', 'in sync', 'differs', 'failed')),
    ADD COLUMN sync_failure text, -- why it could not be checked
    -- Up to 20 devices of the sample: [{application_code, client_id, difference, fields}]; no values, no contacts.
    ADD COLUMN sync_differences jsonb;
ALTER TABLE clientmgr.dashboard_tenant_metrics_history
    ADD CONSTRAINT dashboard_tenant_metrics_sync_status_check
    CHECK (sync_status IN ('not checked', 'in sync', 'differs', 'failed')),
    ADD COLUMN sync_failure text,
    ADD COLUMN sync_differences jsonb; -- without client_id
ALTER TABLE clientmgr.dashboard_tenant_metrics_staged
    ADD COLUMN sync_failure text,
    ADD COLUMN sync_differences text;

CREATE OR REPLACE VIEW clientmgr.dashboard_worst_sync AS
SELECT customer_id, sync_difference_share, linked_devices, sync_dynamodb_devices, sync_sampled, sync_missing_in_dynamodb,
    sync_missing_in_postgres, sync_different, sync_different_fields, collected_at, sync_status, sync_failure,
    sync_differences
FROM clientmgr.dashboard_tenant_metrics
WHERE sync_status <> 'not checked'
-- Whoever could not be checked may be the worst.
ORDER BY sync_difference_share DESC NULLS FIRST, customer_id;
