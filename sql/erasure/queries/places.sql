-- Where a contact or an account may have left something. Everything here only reads.

-- name: schemas
-- Of the tenants' schemas only the one in question.
SELECT n.nspname::text FROM pg_namespace AS n
WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND n.nspname <> ALL (%(without)s::text [])
    AND (clientmgr.customer_of_schema(n.nspname) IS NULL OR n.nspname = %(tenant_schema)s);

-- name: tables
-- Every table there is, found in the catalogue: a new one is looked at without anybody's remembering it. Partitions are
-- read through their table; views have no rows of their own. Nothing of ours here: Dagster may have a database of its own.
SELECT n.nspname::text, c.relname::text,
    array_agg(a.attname::text ORDER BY a.attnum),
    array_agg(
        CASE
            WHEN t.oid = 'bytea'::regtype THEN 'bytes'
            WHEN t.typcategory = 'N' THEN 'number'
            WHEN t.typcategory IN ('D', 'T', 'B') OR t.oid IN ('uuid'::regtype, 'xid8'::regtype) THEN 'other'
            ELSE 'text'
        END ORDER BY a.attnum
    )
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type AS t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition AND c.relpersistence <> 't'
    AND n.nspname = ANY (%(schemas)s::text [])
GROUP BY n.nspname, c.relname
ORDER BY n.nspname, c.relname;

-- name: not_tables
-- What holds rows of another server: we can't look there.
SELECT n.nspname::text || '.' || c.relname::text
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'f' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' ORDER BY 1;

-- name: statistics
-- What the planner remembers of columns. It holds values of rows that are gone until the table is analysed again.
SELECT s.schemaname::text, s.tablename::text, s.attname::text,
    concat_ws(' ', s.most_common_vals::text, s.histogram_bounds::text)
FROM pg_stats AS s
WHERE s.schemaname !~ '^pg_' AND s.schemaname <> 'information_schema'
    AND (clientmgr.customer_of_schema(s.schemaname) IS NULL OR s.schemaname = %(tenant_schema)s);

-- name: unreadable
SELECT c.oid::regclass::text
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname IN ('clientmgr', 'live')
    AND NOT has_table_privilege('clientmgr_reader', c.oid, 'SELECT');

-- name: topics
SELECT id, topic FROM clientmgr.log_counter;

-- name: audit_rows
SELECT customer_id, seq, recorded_at, actor, action, contact_hash, rows_affected, outcome, details, key_id,
    previous_hash, hash
FROM clientmgr.audit_log
WHERE customer_id = %(customer_id)s AND contact_hash = %(contact_hash)s
ORDER BY seq;

-- name: account_audit_rows
SELECT customer_id, seq, recorded_at, actor, action, contact_hash, rows_affected, outcome, details, key_id,
    previous_hash, hash
FROM clientmgr.audit_log
WHERE customer_id = %(customer_id)s AND (action LIKE 'account.%%' OR action LIKE 'tenant.%%')
ORDER BY seq;
