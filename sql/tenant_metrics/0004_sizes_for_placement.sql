-- Whoever makes tenants on a Citus cluster asks which node has the most room: clientmgr/tenants/emptiest_node.py.
GRANT SELECT (customer_id, table_bytes) ON clientmgr.dashboard_tenant_metrics TO clientmgr_ddl;
