-- What a Citus coordinator is asked and told when its database is migrated: clientmgr/operations/cluster.py.

-- name: nodes
-- What each node has to have, asked of the node itself. A node that can't be asked says why.
SELECT format('%%s:%%s', n.nodename, n.nodeport), r.success, r.result
FROM pg_catalog.run_command_on_all_nodes(%(question)s) AS r
JOIN pg_catalog.pg_dist_node AS n USING (nodeid)
ORDER BY n.groupid;

-- name: what_a_node_has
-- Runs on a node. One value: what is missing, by comma.
SELECT concat_ws(
    ', ',
    CASE WHEN current_setting('max_prepared_transactions')::integer = 0 THEN 'max_prepared_transactions above 0' END,
    (
        SELECT string_agg(format('the role %s with LOGIN', wanted.name), ', ')
        FROM unnest('{clientmgr_ddl,clientmgr_writer,clientmgr_reader}'::text []) AS wanted (name)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS p WHERE p.rolname = wanted.name AND p.rolcanlogin)
    )
);

-- name: not_on_nodes
-- Functions that tenants' migrations call: nodes have those that are known as theirs.
SELECT p.oid::regprocedure::text
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'clientmgr'::regnamespace
    AND p.proname IN ('keyed_hash', 'customer_of', 'contact_hash', 'device_hash', 'token_hash')
    AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_dist_object AS o
        WHERE o.classid = 'pg_catalog.pg_proc'::regclass AND o.objid = p.oid
    )
ORDER BY p.oid;

-- name: send_to_nodes
SELECT pg_catalog.create_distributed_function(%(function)s::regprocedure);

-- name: is_known_to_nodes
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_dist_object
    WHERE classid = 'pg_catalog.pg_authid'::regclass AND objid = 'clientmgr_ddl'::regrole
);

-- name: make_known_to_nodes
-- As clientmgr_ddl, each in a transaction of its own: only then Citus itself brings the schema's owner to the nodes. In
-- one transaction with its schema, as tenants have it, a table finds its owner there.
SET citus.enable_schema_based_sharding = on;
CREATE SCHEMA clientmgr_spread_probe;
CREATE TABLE clientmgr_spread_probe.probe ();
DROP SCHEMA clientmgr_spread_probe CASCADE;

-- name: defaults
-- For every session of this database, where an operator has not chosen.
SELECT format('ALTER DATABASE %I SET %s = %L', current_database(), wanted.name, wanted.value)
FROM (
    VALUES
    ('citus.propagate_set_commands', 'local'), -- SET LOCAL counts on the nodes too: lock timeouts, planner settings
    ('citus.node_connection_timeout', '5000') -- a node that is gone is to cost its own tenants, and others little
) AS wanted (name, value)
JOIN pg_catalog.pg_settings AS s ON s.name = wanted.name
WHERE s.source = 'default';
