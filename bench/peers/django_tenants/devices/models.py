"""The tables of bench/tenants/workload as Django models: the same tables, columns, indexes and checks.

What Django has no word for is left out: the fillfactor of `devices`.
"""

# ruff: noqa: RUF012 - the way of Django
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Device(models.Model):
    pk = models.CompositePrimaryKey("application_code", "client_id")
    application_code = models.TextField()
    client_id = models.TextField()
    hardware_id = models.TextField(null=True)
    contact_id = models.BigIntegerField(null=True)
    platform = models.TextField(null=True)
    provider = models.TextField(db_default="none")
    application_version = models.TextField(null=True)
    os_version = models.TextField(null=True)
    device_model = models.TextField(null=True)
    sdk_version = models.TextField(null=True)
    language = models.TextField(null=True)
    timezone = models.TextField(null=True)
    push_enabled = models.BooleanField(null=True)
    push_settings = models.JSONField(null=True)
    push_token = models.TextField(null=True)
    push_token_kind = models.TextField(null=True)
    push_token_status = models.TextField(db_default="none")
    web_push = models.JSONField(null=True)
    attributes = models.JSONField(null=True)
    orphaned_since = models.DateTimeField(null=True)
    last_seen_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    info_versions = models.JSONField(db_default={})
    push_token_version = models.BigIntegerField(db_default=0)
    push_token_digest = models.BinaryField(null=True)
    push_token_status_version = models.BigIntegerField(db_default=0)
    contact_version = models.BigIntegerField(db_default=0)
    last_seen_version = models.BigIntegerField(db_default=0)
    nickname = models.TextField(null=True)  # what the one-column migration adds

    class Meta:
        db_table = "devices"
        indexes = [
            models.Index(fields=["contact_id"], name="devices_by_contact", condition=Q(contact_id__isnull=False)),
            models.Index(fields=["orphaned_since"], name="devices_orphaned", condition=Q(orphaned_since__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(
                name="devices_provider_check",
                condition=Q(provider__in=["apple", "fcm", "huawei", "vapid", "none"]),
            ),
            models.CheckConstraint(
                name="devices_push_token_kind_check",
                condition=Q(push_token_kind__in=["apns", "fcm_token", "fcm_fid", "hms", "webpush"]),
            ),
            models.CheckConstraint(
                name="devices_push_token_status_check",
                condition=Q(push_token_status__in=["none", "valid", "invalid", "superseded"]),
            ),
        ]


class DeviceTombstone(models.Model):
    pk = models.CompositePrimaryKey("application_code", "client_id")
    application_code = models.TextField()
    client_id = models.TextField()
    deleted_version = models.BigIntegerField()
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "device_tombstones"


class ContactTombstone(models.Model):
    contact_id = models.BigIntegerField(primary_key=True)
    deleted_version = models.BigIntegerField()
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "contact_tombstones"


class ContactLink(models.Model):
    pk = models.CompositePrimaryKey("contact_id", "application_code", "client_id")
    contact_id = models.BigIntegerField()
    application_code = models.TextField()
    client_id = models.TextField()
    linked_version = models.BigIntegerField()

    class Meta:
        db_table = "contact_links"


class PushTokenClaim(models.Model):
    pk = models.CompositePrimaryKey("application_code", "token_digest")
    application_code = models.TextField()
    token_digest = models.BinaryField()
    client_id = models.TextField()
    claimed_version = models.BigIntegerField()

    class Meta:
        db_table = "push_token_claims"
