"""The tables of bench/tenants/workload/0001_devices.sql."""

# ruff: noqa: RUF012 - the way of Django

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ContactTombstone",
            fields=[
                ("contact_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("deleted_version", models.BigIntegerField()),
                ("recorded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "contact_tombstones",
            },
        ),
        migrations.CreateModel(
            name="DeviceTombstone",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application_code", "client_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("application_code", models.TextField()),
                ("client_id", models.TextField()),
                ("deleted_version", models.BigIntegerField()),
                ("recorded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "device_tombstones",
            },
        ),
        migrations.CreateModel(
            name="ContactLink",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "contact_id",
                        "application_code",
                        "client_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("contact_id", models.BigIntegerField()),
                ("application_code", models.TextField()),
                ("client_id", models.TextField()),
                ("linked_version", models.BigIntegerField()),
            ],
            options={
                "db_table": "contact_links",
            },
        ),
        migrations.CreateModel(
            name="PushTokenClaim",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application_code",
                        "token_digest",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application_code", models.TextField()),
                ("token_digest", models.BinaryField()),
                ("client_id", models.TextField()),
                ("claimed_version", models.BigIntegerField()),
            ],
            options={
                "db_table": "push_token_claims",
            },
        ),
        migrations.CreateModel(
            name="Device",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application_code", "client_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("application_code", models.TextField()),
                ("client_id", models.TextField()),
                ("hardware_id", models.TextField(null=True)),
                ("contact_id", models.BigIntegerField(null=True)),
                ("platform", models.TextField(null=True)),
                ("provider", models.TextField(db_default="none")),
                ("application_version", models.TextField(null=True)),
                ("os_version", models.TextField(null=True)),
                ("device_model", models.TextField(null=True)),
                ("sdk_version", models.TextField(null=True)),
                ("language", models.TextField(null=True)),
                ("timezone", models.TextField(null=True)),
                ("push_enabled", models.BooleanField(null=True)),
                ("push_settings", models.JSONField(null=True)),
                ("push_token", models.TextField(null=True)),
                ("push_token_kind", models.TextField(null=True)),
                ("push_token_status", models.TextField(db_default="none")),
                ("web_push", models.JSONField(null=True)),
                ("attributes", models.JSONField(null=True)),
                ("orphaned_since", models.DateTimeField(null=True)),
                ("last_seen_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("info_versions", models.JSONField(db_default={})),
                ("push_token_version", models.BigIntegerField(db_default=0)),
                ("push_token_digest", models.BinaryField(null=True)),
                ("push_token_status_version", models.BigIntegerField(db_default=0)),
                ("contact_version", models.BigIntegerField(db_default=0)),
                ("last_seen_version", models.BigIntegerField(db_default=0)),
            ],
            options={
                "db_table": "devices",
                "indexes": [
                    models.Index(
                        condition=models.Q(("contact_id__isnull", False)),
                        fields=["contact_id"],
                        name="devices_by_contact",
                    ),
                    models.Index(
                        condition=models.Q(("orphaned_since__isnull", False)),
                        fields=["orphaned_since"],
                        name="devices_orphaned",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("provider__in", ["apple", "fcm", "huawei", "vapid", "none"])),
                        name="devices_provider_check",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("push_token_kind__in", ["apns", "fcm_token", "fcm_fid", "hms", "webpush"])),
                        name="devices_push_token_kind_check",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("push_token_status__in", ["none", "valid", "invalid", "superseded"])),
                        name="devices_push_token_status_check",
                    ),
                ],
            },
        ),
    ]
