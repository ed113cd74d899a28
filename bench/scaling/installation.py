"""How many connections an installation keeps while it has nothing to do."""

import psycopg

from bench.at_rest.command import RunningCommand
from bench.harness.options import Options
from bench.scaling.measured import Installation

SETTLE_S, SETTLE_QUICK_S = 20.0, 2.0

_CONNECTIONS = """
SELECT usename || ' (' || CASE WHEN application_name = '' THEN '-' ELSE application_name END || ')', count(*)
FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY 1
"""


def measure_installation(options: Options) -> Installation:
    with RunningCommand("up", options.folder) as command:
        command.wait_until_settled(SETTLE_QUICK_S if options.quick else SETTLE_S)
        with psycopg.connect(command.superuser_url) as connection:
            return Installation({str(who): int(count) for who, count in connection.execute(_CONNECTIONS)})
