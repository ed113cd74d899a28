-- What guards the audit log inside the database, as the catalogue tells it. Everybody may read the catalogue.

-- name: tables
SELECT c.relname, c.relkind::text, c.relpersistence::text, c.relrowsecurity OR c.relforcerowsecurity, c.relispartition,
    c.relowner::regrole::text, m.relowner = c.relowner,
    EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid)
FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    -- What the same login made in the same moment.
    JOIN pg_class AS m ON m.relnamespace = n.oid AND m.relname = 'migrations'
WHERE n.nspname = 'clientmgr' AND c.relname IN ('audit_log', 'audit_heads');

-- name: attached
-- Whatever else can change what a statement on these tables does.
SELECT 'rule', r.rulename::text, r.ev_class::regclass::text FROM pg_rewrite AS r
WHERE r.ev_class = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
UNION ALL
SELECT 'policy', p.polname::text, p.polrelid::regclass::text FROM pg_policy AS p
WHERE p.polrelid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
UNION ALL
SELECT 'child table', i.inhrelid::regclass::text, i.inhparent::regclass::text FROM pg_inherits AS i
WHERE i.inhparent = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
UNION ALL
SELECT 'parent table', i.inhparent::regclass::text, i.inhrelid::regclass::text FROM pg_inherits AS i
WHERE i.inhrelid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
UNION ALL
SELECT 'foreign key', f.conname::text, f.conrelid::regclass::text FROM pg_constraint AS f
WHERE f.contype = 'f' AND f.conrelid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
UNION ALL
SELECT 'check', f.conname::text, f.conrelid::regclass::text FROM pg_constraint AS f
WHERE f.contype = 'c' AND f.conname <> 'audit_log_customer_id_check'
    AND f.conrelid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
UNION ALL
-- An index can refuse rows: one that is unique, or that calls a function. A plain one only costs time.
SELECT 'refusing index', i.indexrelid::regclass::text, i.indrelid::regclass::text FROM pg_index AS i
WHERE i.indrelid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass []) AND NOT i.indisprimary
    AND (i.indisunique OR i.indisexclusion OR i.indpred IS NOT NULL OR i.indexprs IS NOT NULL)
UNION ALL
SELECT 'generated column', a.attname::text, a.attrelid::regclass::text FROM pg_attribute AS a
WHERE a.attrelid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass []) AND a.attgenerated <> '';

-- name: triggers
SELECT t.tgname::text, t.tgrelid::regclass::text, t.tgfoid::regproc::text, t.tgtype::integer, t.tgenabled::text,
    t.tgqual IS NOT NULL OR cardinality(t.tgattr) > 0
FROM pg_trigger AS t
WHERE t.tgrelid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass []) AND NOT t.tgisinternal;

-- name: functions
SELECT p.proname::text, l.lanname::text, p.prosrc, p.prosecdef, coalesce(p.proconfig, '{}'), p.proowner::regrole::text,
    m.relowner = p.proowner
FROM pg_proc AS p
    JOIN pg_namespace AS n ON n.oid = p.pronamespace
    JOIN pg_language AS l ON l.oid = p.prolang
    JOIN pg_class AS m ON m.relnamespace = n.oid AND m.relname = 'migrations'
WHERE n.nspname = 'clientmgr' AND p.proname IN ('lock_audit_chain', 'append_to_audit_chain', 'refuse_audit_change');

-- name: grants
-- Rights of anybody but the owner, on whole tables, on columns, and on the functions: whoever may call one that moves a
-- chain's end can attach it to a table of their own.
SELECT g.object, CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(g.grantee)::text END, g.privilege_type
FROM (
    SELECT c.oid::regclass::text AS object, c.relowner AS owner, a.grantee, a.privilege_type
    FROM pg_class AS c, aclexplode(c.relacl) AS a
    WHERE c.oid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
    UNION
    SELECT c.oid::regclass::text, c.relowner, a.grantee, a.privilege_type
    FROM pg_class AS c JOIN pg_attribute AS t ON t.attrelid = c.oid, aclexplode(t.attacl) AS a
    WHERE c.oid = ANY(ARRAY['clientmgr.audit_log', 'clientmgr.audit_heads']::regclass [])
    UNION
    SELECT p.oid::regproc::text, p.proowner, a.grantee, a.privilege_type
    FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
    WHERE p.oid = ANY(ARRAY(
        SELECT f.oid FROM pg_proc AS f JOIN pg_namespace AS n ON n.oid = f.pronamespace
        WHERE n.nspname = 'clientmgr'
            AND f.proname IN ('lock_audit_chain', 'append_to_audit_chain', 'refuse_audit_change')
    ))
) AS g
WHERE g.grantee <> g.owner;

-- name: mighty_roles
-- Of our roles, those that could do what only the owner may.
SELECT r.rolname::text,
    CASE
        WHEN r.rolsuper THEN 'is a superuser'
        WHEN r.rolbypassrls OR r.rolreplication THEN 'has rights of a superuser'
        WHEN EXISTS (SELECT FROM pg_roles AS s WHERE s.rolsuper AND pg_has_role(r.oid, s.oid, 'MEMBER'))
            THEN 'is a member of a superuser'
        WHEN pg_has_role(r.oid, c.relowner, 'MEMBER') THEN 'is a member of the owner'
        ELSE 'may write all tables (pg_write_all_data)'
    END
FROM pg_roles AS r CROSS JOIN pg_class AS c LEFT JOIN pg_roles AS w ON w.rolname = 'pg_write_all_data'
WHERE r.rolname IN ('clientmgr_ddl', 'clientmgr_writer', 'clientmgr_reader', 'clientmgr_dagster')
    AND c.oid = 'clientmgr.audit_log'::regclass
    AND (
        r.rolsuper OR r.rolbypassrls OR r.rolreplication OR pg_has_role(r.oid, c.relowner, 'MEMBER')
        OR pg_has_role(r.oid, w.oid, 'MEMBER')
        OR EXISTS (SELECT FROM pg_roles AS s WHERE s.rolsuper AND pg_has_role(r.oid, s.oid, 'MEMBER'))
    );

-- name: replication_settings
-- session_replication_role = replica switches triggers off without touching them.
SELECT coalesce(pg_get_userbyid(nullif(s.setrole, 0))::text, 'everybody'), item
FROM pg_db_role_setting AS s, unnest(s.setconfig) AS item
WHERE starts_with(lower(item), 'session_replication_role=') AND lower(item) <> 'session_replication_role=origin'
    AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
UNION ALL
SELECT 'this session', 'session_replication_role=' || current_setting('session_replication_role')
WHERE current_setting('session_replication_role') <> 'origin';
