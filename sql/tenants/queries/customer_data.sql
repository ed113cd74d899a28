-- name: tables
-- Every table of the control schema that has a customer_id, with the tables that its foreign keys point at. Partitions
-- are emptied through the table that they belong to, and views have no rows of their own.
SELECT
    c.relname::text,
    ARRAY(
        SELECT target.relname::text
        FROM pg_constraint AS f
        JOIN pg_class AS target ON target.oid = f.confrelid
        WHERE f.conrelid = c.oid AND f.contype = 'f' AND f.confrelid <> f.conrelid
    )
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace('clientmgr') AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND a.attname = 'customer_id' AND a.atttypid = 'bigint'::regtype AND NOT a.attisdropped
ORDER BY c.relname;

-- name: existing
SELECT name FROM unnest(%(names)s::text []) AS name WHERE to_regclass('clientmgr.' || name) IS NOT NULL;

-- name: may_delete
SELECT has_table_privilege('clientmgr_ddl', %(table)s, 'SELECT')
    AND has_table_privilege('clientmgr_ddl', %(table)s, 'DELETE');
