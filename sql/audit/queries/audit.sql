-- name: lock_chains
-- The function is called row by row, in the order given: that is the lock order.
SELECT wanted.chain, head.seq, head.hash
FROM unnest(%(chains)s::bigint []) AS wanted (chain), LATERAL clientmgr.lock_audit_chain(wanted.chain) AS head;

-- name: append
INSERT INTO clientmgr.audit_log
    (customer_id, seq, recorded_at, actor, action, contact_hash, rows_affected, outcome, details, key_id,
     previous_hash, hash)
SELECT n.customer_id, n.seq, %(recorded_at)s, n.actor, n.action, n.contact_hash, n.rows_affected, n.outcome,
    n.details::jsonb, %(key_id)s, n.previous_hash, n.hash
FROM unnest(
    %(customer_id)s::bigint [], %(seq)s::bigint [], %(actor)s::text [], %(action)s::text [], %(contact_hash)s::text [],
    %(rows_affected)s::bigint [], %(outcome)s::text [], %(details)s::text [], %(previous_hash)s::bytea [],
    %(hash)s::bytea []
) AS n (customer_id, seq, actor, action, contact_hash, rows_affected, outcome, details, previous_hash, hash);

-- name: heads
SELECT customer_id, seq, hash FROM clientmgr.audit_heads
WHERE customer_id = %(customer_id)s::bigint OR %(customer_id)s::bigint IS NULL;

-- name: tenants_without_chain
SELECT t.customer_id FROM clientmgr.tenants AS t
WHERE (t.customer_id = %(customer_id)s::bigint OR %(customer_id)s::bigint IS NULL)
    AND t.status IN ('active', 'deleting', 'deleted')
    AND NOT EXISTS (SELECT FROM clientmgr.audit_heads AS h WHERE h.customer_id = t.customer_id)
ORDER BY t.customer_id;

-- name: schemas_without_chain
-- A schema is made in one transaction with its audit row.
SELECT s.customer_id
FROM (
    SELECT clientmgr.customer_of_schema(n.nspname) AS customer_id FROM pg_namespace AS n
) AS s
WHERE (s.customer_id = %(customer_id)s::bigint OR %(customer_id)s::bigint IS NULL)
    AND NOT EXISTS (SELECT FROM clientmgr.audit_heads AS h WHERE h.customer_id = s.customer_id)
    AND NOT EXISTS (SELECT FROM clientmgr.tenants AS t WHERE t.customer_id = s.customer_id)
    AND s.customer_id IS NOT NULL
ORDER BY s.customer_id;

-- name: read_oldest_first
SELECT customer_id, seq, recorded_at, actor, action, contact_hash, rows_affected, outcome, details, key_id,
    previous_hash, hash
FROM clientmgr.audit_log
WHERE (customer_id = %(customer_id)s::bigint OR %(customer_id)s::bigint IS NULL)
    AND (action = %(action)s::text OR %(action)s::text IS NULL)
ORDER BY customer_id, seq
LIMIT %(limit)s::bigint;

-- name: read_newest_first
SELECT customer_id, seq, recorded_at, actor, action, contact_hash, rows_affected, outcome, details, key_id,
    previous_hash, hash
FROM clientmgr.audit_log
WHERE (customer_id = %(customer_id)s::bigint OR %(customer_id)s::bigint IS NULL)
    AND (action = %(action)s::text OR %(action)s::text IS NULL)
ORDER BY recorded_at DESC, customer_id, seq DESC
LIMIT %(limit)s::bigint;

-- name: read_chain
SELECT customer_id, seq, recorded_at, actor, action, contact_hash, rows_affected, outcome, details, key_id,
    previous_hash, hash
FROM clientmgr.audit_log
WHERE customer_id = %(customer_id)s AND (%(before_seq)s::bigint IS NULL OR seq < %(before_seq)s)
ORDER BY seq DESC
LIMIT %(limit)s;

-- name: search
-- Across all chains, by time: pages follow each other by (recorded_at, customer_id, seq), the newest first.
SELECT customer_id, seq, recorded_at, actor, action, contact_hash, rows_affected, outcome, details, key_id,
    previous_hash, hash
FROM clientmgr.audit_log
WHERE (%(customer_id)s::bigint IS NULL OR customer_id = %(customer_id)s::bigint)
    AND (%(actor)s::text IS NULL OR strpos(actor, %(actor)s) > 0)
    AND (%(action)s::text IS NULL OR starts_with(action, %(action)s))
    -- Bounds that the index on the time can use, whatever is given.
    AND recorded_at >= coalesce(%(since)s::timestamptz, '-infinity')
    AND recorded_at < coalesce(%(until)s::timestamptz, 'infinity')
    AND recorded_at <= coalesce(%(before_at)s::timestamptz, 'infinity')
    AND (
        %(before_at)s::timestamptz IS NULL
        OR (recorded_at, customer_id, seq) < (%(before_at)s, %(before_customer)s::bigint, %(before_seq)s::bigint)
    )
ORDER BY recorded_at DESC, customer_id DESC, seq DESC
LIMIT %(limit)s;

-- name: chain_length
SELECT seq FROM clientmgr.audit_heads WHERE customer_id = %(customer_id)s;

-- name: rows_at
-- The hashes of certain rows, one of each chain: those that an anchor names.
SELECT a.customer_id, a.hash
FROM unnest(%(chains)s::bigint [], %(seqs)s::bigint []) AS wanted (customer_id, seq)
    JOIN clientmgr.audit_log AS a USING (customer_id, seq);

-- name: last_rows
-- The rows at which chains end, by the record of their ends. One of them may be missing.
SELECT a.customer_id, a.seq, a.recorded_at, a.actor, a.action, a.contact_hash, a.rows_affected, a.outcome, a.details,
    a.key_id, a.previous_hash, a.hash
FROM unnest(%(chains)s::bigint []) AS wanted (customer_id)
    JOIN clientmgr.audit_heads AS h USING (customer_id)
    JOIN clientmgr.audit_log AS a USING (customer_id, seq);

-- name: announced_places
SELECT DISTINCT details ->> 'place' FROM clientmgr.audit_log
WHERE customer_id = 0 AND action = %(action)s;
