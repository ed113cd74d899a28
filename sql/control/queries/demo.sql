-- name: insert_devices
INSERT INTO :"schema".devices (
    application_code, client_id, hardware_id, contact_id, platform, provider, application_version, os_version,
    device_model, language, timezone, push_enabled, push_token, push_token_kind, push_token_status, orphaned_since,
    last_seen_at
)
SELECT
    'DEMO-' || (mod(n, 2) + 1), 'client-' || n, 'hw-' || n, CASE WHEN mod(n, 10) <> 0 THEN 10000 + n / 2 END,
    CASE WHEN mod(n, 3) = 0 THEN 'ios' ELSE 'android' END, CASE WHEN mod(n, 3) = 0 THEN 'apple' ELSE 'fcm' END,
    '4.' || mod(n, 12), CASE WHEN mod(n, 3) = 0 THEN '18.' ELSE '15.' END || mod(n, 4),
    CASE WHEN mod(n, 3) = 0 THEN 'iPhone 16' ELSE 'Pixel 9' END, (ARRAY['en', 'fr', 'hu', 'de', 'zh-Hant'])[mod(n, 5) + 1],
    'Europe/Budapest', mod(n, 7) <> 0, 'demo-token-' || n, CASE WHEN mod(n, 3) = 0 THEN 'apns' ELSE 'fcm_token' END,
    CASE WHEN mod(n, 13) = 0 THEN 'invalid' ELSE 'valid' END,
    CASE WHEN mod(n, 10) = 0 THEN now() - make_interval(days => mod(n, 60)) END,
    now() - make_interval(hours => mod(n, 200))
FROM generate_series(1, %(devices)s::integer) AS n
ON CONFLICT DO NOTHING;
