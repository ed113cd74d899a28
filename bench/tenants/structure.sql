-- How many tenant schemas have which tables, columns, indexes and constraints: variants that did the same work agree.
-- Left out: the order of columns, comments and defaults (Django says statement_timestamp() for our now()), and
-- django_migrations, Django's own bookkeeping.
WITH tables AS (
    SELECT c.oid, n.nspname, c.relname
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname LIKE 'tenant\_%' AND c.relname <> 'django_migrations'
), parts AS (
    SELECT t.nspname,
        concat_ws(' ', t.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull) AS part
    FROM tables AS t JOIN pg_attribute AS a ON a.attrelid = t.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT t.nspname, replace(pg_get_indexdef(i.indexrelid), concat(' ON ', t.nspname, '.'), ' ON ')
    FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.oid
    UNION ALL
    SELECT t.nspname, concat_ws(' ', t.relname, pg_get_constraintdef(o.oid))
    FROM tables AS t JOIN pg_constraint AS o ON o.conrelid = t.oid
), schemas AS (
    SELECT nspname, string_agg(part, E'\n' ORDER BY part COLLATE "C") AS structure FROM parts GROUP BY nspname
)
SELECT structure, count(*) FROM schemas GROUP BY structure ORDER BY structure;
