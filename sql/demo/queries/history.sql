-- Made up, for the demo's charts. What is written here says so: its `run_id` is 'demo'.

-- name: make_history
-- A collection each night, until last night. Growth that slows down, with a weekly rhythm; it ends about where the demo's
-- own numbers begin.
WITH customers (customer_id, devices) AS (SELECT * FROM unnest(%(customers)s::bigint [], %(devices)s::bigint [])),
nights AS (
    SELECT
        c.*, ago, date_trunc('day', now(), 'UTC') - make_interval(days => ago - 1) + interval '5 hours' AS collected_at,
        round(c.devices * (1 - 0.55 * (ago / 90.0) ^ 1.4) + c.devices * 0.012 * sin(ago * 0.9))::bigint AS counted,
        0.012 * sin(ago * 2.3 + c.customer_id) AS wave
    FROM customers AS c, generate_series(1, 90) AS ago
),
shares AS (
    SELECT
        n.*, round(counted * (0.87 - 0.1 * ago / 90.0 + wave))::bigint AS push_enabled,
        round(counted * (0.035 + 0.02 * ago / 90.0 - wave))::bigint AS invalid,
        round(counted * (0.37 - 0.1 * ago / 90.0))::bigint AS without_token, round(counted * 0.005)::bigint AS superseded,
        round(counted * (0.4 + 0.2 * ago / 90.0))::bigint AS linked, round(counted * wave * wave * 40)::bigint AS orphaned
    FROM nights AS n
    WHERE collected_at < now()
)
INSERT INTO clientmgr.dashboard_tenant_metrics_history (
    customer_id, collected_at, run_id, status, devices, devices_by_platform, devices_by_provider, push_enabled,
    push_enabled_share, tokens_none, tokens_valid, tokens_invalid, tokens_superseded, tokens_none_share,
    tokens_valid_share, tokens_invalid_share, tokens_superseded_share, contacts, linked_devices, without_contact, orphans,
    table_bytes, sync_status
)
SELECT
    customer_id, collected_at, 'demo', 'ok', counted,
    jsonb_build_object(
        'android', counted - round(counted * 0.40) - round(counted * 0.10) - round(counted * 0.04),
        'ios', round(counted * 0.40), 'web', round(counted * 0.10), 'android-huawei', round(counted * 0.04)
    ),
    jsonb_build_object(
        'fcm', counted - round(counted * 0.40) - round(counted * 0.10) - round(counted * 0.04),
        'apple', round(counted * 0.40), 'vapid', round(counted * 0.10), 'huawei', round(counted * 0.04)
    ),
    push_enabled, push_enabled::double precision / nullif(counted, 0), without_token,
    counted - without_token - invalid - superseded, invalid, superseded,
    without_token::double precision / nullif(counted, 0),
    (counted - without_token - invalid - superseded)::double precision / nullif(counted, 0),
    invalid::double precision / nullif(counted, 0), superseded::double precision / nullif(counted, 0),
    round(linked * 0.85), linked, counted - linked, orphaned, 65536 + counted * 900, 'not checked'
FROM shares
WHERE NOT EXISTS (SELECT FROM clientmgr.dashboard_tenant_metrics_history WHERE run_id = 'demo')
ORDER BY customer_id, collected_at
ON CONFLICT (customer_id, collected_at) DO NOTHING;

-- name: make_samples
-- The last day for the overview's charts, a sample a minute up to a few minutes ago; only where nobody has taken one. Totals
-- end at zero, where the log begins: before that they are negative, which no rate minds. An hour without samples shows
-- what a gap looks like, and a busy quarter of an hour late last evening what lag does.
WITH minutes AS (
    SELECT
        m, 950 + 300 * sin(m * 0.0043) + 90 * sin(m * 1.7) + 40 * sin(m * 0.31) AS events,
        (m BETWEEN 605 AND 620)::integer AS is_busy
    FROM generate_series(4, 1438) AS m
),
totals AS (
    SELECT
        m, is_busy,
        -round(sum(events * (1 + 2.5 * is_busy)) OVER w)::bigint AS events,
        -round(sum(events * 0.4) OVER w)::bigint AS sends,
        -round(sum(CASE WHEN m <= 300 THEN 0.4 + 0.4 * sin(m * 0.9) ELSE 0 END) OVER w)::bigint AS errors
    FROM minutes
    WINDOW w AS (ORDER BY m)
)
INSERT INTO clientmgr.samples (at, events, sends, errors, dead_letters, last_letter, unread, oldest_unread_s)
SELECT
    date_bin('1 minute', now(), 'epoch') - make_interval(mins => m), events, sends, errors, 0, 0,
    is_busy * 900, is_busy * (14 + 12 * sin(m * 0.4)) + 0.3 + 0.2 * sin(m * 1.1)
FROM totals
WHERE m NOT BETWEEN 1000 AND 1060 AND NOT EXISTS (SELECT FROM clientmgr.samples)
ON CONFLICT (at) DO NOTHING;
