-- Where tenants lie on a Citus cluster. All but `on_a_node` is asked of the coordinator, which knows of every schema.

-- name: nodes
SELECT groupid, nodeid, nodename, nodeport, isactive, shouldhaveshards FROM pg_catalog.pg_dist_node
WHERE noderole = 'primary'
ORDER BY groupid;

-- name: places
-- A schema's tables lie together, so each schema has one group. Group 0 is the coordinator: what is not distributed.
WITH placed AS (
    SELECT DISTINCT pg_dist_partition.colocationid, pg_dist_placement.groupid
    FROM pg_catalog.pg_dist_partition
    INNER JOIN pg_catalog.pg_dist_shard USING (logicalrelid)
    INNER JOIN pg_catalog.pg_dist_placement USING (shardid)
    WHERE pg_dist_placement.shardstate = 1
)

SELECT t.customer_id, coalesce(placed.groupid, 0) AS groupid, pg_dist_schema.schemaid IS NOT NULL AS is_distributed
FROM clientmgr.tenants AS t
INNER JOIN pg_catalog.pg_namespace AS n ON n.nspname = clientmgr.tenant_schema(t.customer_id)
LEFT JOIN pg_catalog.pg_dist_schema ON n.oid = pg_dist_schema.schemaid
LEFT JOIN placed USING (colocationid)
WHERE t.status <> 'deleted' AND (%(customer_ids)s::bigint [] IS NULL OR t.customer_id = ANY(%(customer_ids)s))
ORDER BY t.customer_id;

-- name: on_all_nodes
SELECT nodeid, success, result FROM pg_catalog.run_command_on_all_nodes(%(command)s);

-- name: on_a_node
-- What lies here: real tables and shards. The shells that stand for other nodes' tables are in pg_dist_partition.
SELECT jsonb_build_object(
    'connections', (SELECT numbackends FROM pg_catalog.pg_stat_database WHERE datname = current_database()),
    'tenants', (
        SELECT jsonb_object_agg(nspname, jsonb_build_array(bytes, rows_written)) FROM (
            SELECT
                n.nspname,
                sum(pg_total_relation_size(c.oid)) AS bytes,
                sum(
                    pg_stat_get_tuples_inserted(c.oid)
                    + pg_stat_get_tuples_updated(c.oid)
                    + pg_stat_get_tuples_deleted(c.oid)
                ) AS rows_written
            FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
            WHERE c.relkind = 'r' AND n.nspname LIKE 'tenant\_%'
                AND NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition AS p WHERE p.logicalrelid = c.oid)
            GROUP BY n.nspname
        ) AS found
    )
);

-- name: copies
-- What is being copied: Citus notes whatever a failed move would leave, before it makes it (object type 1 is a shard of a
-- table, policy 1 "remove it if this fails"). So a move that has just been stopped is here too, until that is removed.
SELECT DISTINCT clientmgr.customer_of_schema(split_part(object_name, '.', 1)::name) AS customer_id, node_group_id
FROM pg_catalog.pg_dist_cleanup
WHERE object_type = 1 AND policy_type = 1
    AND clientmgr.customer_of_schema(split_part(object_name, '.', 1)::name) IS NOT NULL
ORDER BY customer_id;

-- name: progress
-- Of the asking role's own moves: PostgreSQL shows nobody else's.
SELECT p.sessionid, min(p.status), sum(p.source_shard_size)::bigint AS bytes, sum(p.target_shard_size)::bigint AS copied
FROM pg_catalog.get_rebalance_progress() AS p
WHERE p.progress < 2
GROUP BY p.sessionid;

-- name: rebalance
SELECT
    r.job_id, r.state::text AS state, r.started_at, r.finished_at,
    coalesce((r.details -> 'task_state_counts' ->> 'done')::integer, 0) AS moved,
    (SELECT sum(counted.value::integer)::integer FROM jsonb_each_text(r.details -> 'task_state_counts') AS counted)
        AS moves,
    (SELECT min(task ->> 'message') FROM jsonb_array_elements(r.details -> 'tasks') AS task WHERE task ->> 'phase' IS NULL)
        AS trouble
FROM pg_catalog.citus_rebalance_status() AS r;

-- name: move
-- By logical replication: it is written to meanwhile.
SELECT pg_catalog.citus_schema_move(clientmgr.tenant_schema(%(customer_id)s)::regnamespace, %(host)s, %(port)s);

-- name: move_empty
-- Writes wait for it, and there is nothing to replicate: a tenth of the time.
SELECT pg_catalog.citus_schema_move(
    clientmgr.tenant_schema(%(customer_id)s)::regnamespace, %(host)s, %(port)s, 'block_writes'
);

-- name: distribute
SELECT pg_catalog.citus_schema_distribute(clientmgr.tenant_schema(%(customer_id)s)::regnamespace);

-- name: remove_leftovers
CALL pg_catalog.citus_cleanup_orphaned_resources();

-- name: plan
SELECT
    clientmgr.customer_of_schema(n.nspname) AS customer_id, plan.sourcename, plan.sourceport, plan.targetname, plan.targetport
FROM pg_catalog.get_rebalance_table_shards_plan(rebalance_strategy => %(strategy)s) AS plan
INNER JOIN pg_catalog.pg_class AS c ON c.oid = plan.table_name
INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE clientmgr.customer_of_schema(n.nspname) IS NOT NULL
GROUP BY n.nspname, plan.sourcename, plan.sourceport, plan.targetname, plan.targetport
ORDER BY customer_id;

-- name: start_rebalance
SELECT pg_catalog.citus_rebalance_start(rebalance_strategy => %(strategy)s);

-- name: stop_rebalance
SELECT pg_catalog.citus_rebalance_stop();

-- name: collected_sizes
-- As they were counted last: to ask the nodes for each new tenant would cost a look at every table that there is.
SELECT customer_id, table_bytes FROM clientmgr.dashboard_tenant_metrics WHERE table_bytes IS NOT NULL;
