-- What a tenant's schema on a Citus cluster needs besides. :"schema" is the tenant's schema.

-- name: grants
-- The default privileges of clientmgr_ddl (sql/base/0001_schema_and_roles.sql) are the coordinator's: nodes know none.
GRANT USAGE ON SCHEMA :"schema" TO clientmgr_writer, clientmgr_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA :"schema" TO clientmgr_writer;
GRANT SELECT ON ALL TABLES IN SCHEMA :"schema" TO clientmgr_reader;

-- name: on_the_same_node
-- The customers whose schemas are on the node that has this one's. Asked once a node is lost, of the coordinator alone.
WITH placed AS (
    SELECT n.nspname, t.groupid
    FROM pg_catalog.pg_dist_schema AS s
    JOIN pg_catalog.pg_namespace AS n ON n.oid = s.schemaid
    JOIN LATERAL (
        SELECT p.groupid
        FROM pg_catalog.pg_dist_partition AS d
        JOIN pg_catalog.pg_dist_shard AS h USING (logicalrelid)
        JOIN pg_catalog.pg_dist_placement AS p USING (shardid)
        WHERE d.colocationid = s.colocationid
        LIMIT 1
    ) AS t ON true
)

SELECT clientmgr.customer_of_schema(others.nspname)
FROM placed AS own JOIN placed AS others USING (groupid)
WHERE own.nspname = clientmgr.tenant_schema(%(customer_id)s)
    AND others.nspname LIKE 'tenant\_%%';
