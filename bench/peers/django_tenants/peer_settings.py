"""The smallest Django project that django-tenants can migrate: a registry of tenants, and their devices."""

import os
from urllib.parse import unquote, urlsplit

_url = urlsplit(os.environ["PEER_DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django_tenants.postgresql_backend",
        "HOST": _url.hostname,
        "PORT": _url.port,
        "NAME": _url.path.lstrip("/"),
        "USER": _url.username,
        "PASSWORD": unquote(_url.password or ""),
    }
}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]

SHARED_APPS = ["django_tenants", "django.contrib.contenttypes", "registry"]
TENANT_APPS = ["devices"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
TENANT_MODEL = "registry.Tenant"
TENANT_DOMAIN_MODEL = "registry.Domain"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

# As many connections as everybody else in the benchmark has.
TENANT_MULTIPROCESSING_MAX_PROCESSES = int(os.environ["PEER_CONNECTIONS"])
