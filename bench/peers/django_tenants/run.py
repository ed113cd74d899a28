"""One step of the tenants benchmark by django-tenants, in a process of its own: prints its times as JSON.

PEER_DATABASE_URL=… PEER_CONNECTIONS=8 python run.py prepare|activate|add-column|no-op EXECUTOR TENANTS
"""

import json
import os
import sys
import time

os.environ["DJANGO_SETTINGS_MODULE"] = "peer_settings"

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from registry.models import Tenant  # noqa: E402


def main(step: str, executor: str, tenants: int) -> None:
    if step == "prepare":
        call_command("migrate_schemas", shared=True, verbosity=0)
        return
    connection.ensure_connection()
    start_up_cpu = time.process_time()
    started = time.perf_counter()
    if step == "activate":
        register(tenants)
        migrate(executor, "devices", "0001")
    else:
        migrate(executor)
    print(json.dumps({"wall_s": time.perf_counter() - started, "start_up_cpu_s": start_up_cpu}))


def register(tenants: int) -> None:
    """The rows and the empty schemas, each kind in one go: `Tenant.save()` would make and migrate them singly."""
    names = [f"tenant_{number}" for number in range(1, tenants + 1)]
    with transaction.atomic(), connection.cursor() as cursor:
        Tenant.objects.bulk_create(Tenant(schema_name=name) for name in names)
        cursor.execute("".join(f'CREATE SCHEMA "{name}";' for name in names))


def migrate(executor: str, *target: str) -> None:
    call_command("migrate_schemas", *target, tenant=True, executor=executor, interactive=False, verbosity=0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
