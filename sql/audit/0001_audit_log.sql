-- Who asked for what, and what came of it. Rows are chained per customer by a keyed hash that the application computes;
-- the database sees to it that rows are only ever appended at the end of their chain.
CREATE TABLE clientmgr.audit_log (
    customer_id bigint NOT NULL CHECK (customer_id >= 0), -- 0: the platform itself
    seq bigint NOT NULL,
    recorded_at timestamptz NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    contact_hash text,
    rows_affected bigint,
    outcome text NOT NULL,
    details jsonb NOT NULL DEFAULT '{}',
    key_id text NOT NULL,
    previous_hash bytea NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (customer_id, seq)
);
CREATE INDEX audit_log_by_time ON clientmgr.audit_log (recorded_at);

-- The end of each chain: what makes a removed last row visible, and the lock that puts writers of one chain in line.
CREATE TABLE clientmgr.audit_heads (
    customer_id bigint PRIMARY KEY,
    seq bigint NOT NULL,
    hash bytea NOT NULL
);

-- Locks a customer's chain until the transaction ends and tells where it ends. Nobody but this function and the
-- trigger below, which run as the owner, can write audit_heads.
CREATE FUNCTION clientmgr.lock_audit_chain(chain bigint, OUT seq bigint, OUT hash bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO clientmgr.audit_heads AS h (customer_id, seq, hash) VALUES (chain, 0, '')
    ON CONFLICT (customer_id) DO NOTHING;
    SELECT h.seq, h.hash INTO lock_audit_chain.seq, lock_audit_chain.hash
    FROM clientmgr.audit_heads AS h WHERE h.customer_id = chain FOR UPDATE;
END
$$;

-- Checks all rows of one INSERT at once: each must continue its chain, without a gap and linked by hash.
CREATE FUNCTION clientmgr.append_to_audit_chain() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong record;
BEGIN
    PERFORM FROM clientmgr.audit_heads AS h
    WHERE h.customer_id IN (SELECT n.customer_id FROM appended AS n) ORDER BY h.customer_id FOR UPDATE;

    SELECT n.customer_id, n.seq INTO wrong
    FROM (
        SELECT a.customer_id, a.seq, a.previous_hash,
            coalesce(lag(a.seq) OVER chain, h.seq) AS before_seq,
            coalesce(lag(a.hash) OVER chain, h.hash) AS before_hash
        FROM appended AS a LEFT JOIN clientmgr.audit_heads AS h USING (customer_id)
        WINDOW chain AS (PARTITION BY a.customer_id ORDER BY a.seq)
    ) AS n
    WHERE n.seq IS DISTINCT FROM n.before_seq + 1 OR n.previous_hash IS DISTINCT FROM n.before_hash
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'audit row % of customer % does not continue its chain', wrong.seq, wrong.customer_id
            USING ERRCODE = 'restrict_violation';
    END IF;

    UPDATE clientmgr.audit_heads AS h SET seq = last.seq, hash = last.hash
    FROM (
        SELECT DISTINCT ON (customer_id) customer_id, seq, hash FROM appended ORDER BY customer_id, seq DESC
    ) AS last
    WHERE h.customer_id = last.customer_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION clientmgr.refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER audit_log_append AFTER INSERT ON clientmgr.audit_log
    REFERENCING NEW TABLE AS appended FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.append_to_audit_chain();
CREATE TRIGGER audit_log_unchanged BEFORE UPDATE OR DELETE OR TRUNCATE ON clientmgr.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.refuse_audit_change();

REVOKE EXECUTE ON FUNCTION clientmgr.lock_audit_chain (bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clientmgr.lock_audit_chain (bigint) TO clientmgr_ddl, clientmgr_writer;
GRANT SELECT, INSERT ON clientmgr.audit_log TO clientmgr_ddl, clientmgr_writer;
GRANT SELECT ON clientmgr.audit_log, clientmgr.audit_heads TO clientmgr_ddl, clientmgr_writer, clientmgr_reader;
