"""Who is a tenant, as django-tenants wants it told."""

from django_tenants.models import DomainMixin, TenantMixin


class Tenant(TenantMixin):
    # The benchmark makes the schemas and lets `migrate_schemas` fill them, with the executor under test.
    auto_create_schema = False


class Domain(DomainMixin):
    pass
