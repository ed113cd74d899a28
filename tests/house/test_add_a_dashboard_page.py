"""Adding a page to the dashboard takes its module, its template and its test. Nothing else is touched."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import clientmgr_dashboard
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr_dashboard import pages
from clientmgr_dashboard.access.authentication import COOKIE
from clientmgr_dashboard.app import dashboard
from tests.dashboard.house import sign_in, write_users
from tests.keys import TEST_KEY
from tests.streaming.processes import worker

MODULE = '''
"""How many tenants there are in each status."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.tenants.registry import count_by_status
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import Nothing, api_get
from clientmgr_dashboard.web.handling import Site, get
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation


class Statuses(Struct, frozen=True, rename="camel"):
    """Tenants by status."""

    by_status: dict[str, int]


async def tenant_statuses(context: Context, _visitor: Visitor, _request: Nothing) -> Statuses:
    return Statuses(await context.read(count_by_status))


async def statuses(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await tenant_statuses(site.context(), visitor, Nothing())
    return site.renderer.page(request, "statuses.html", found=found)


PAGE = DashboardPage(
    order=25,
    navigation=Navigation("Statuses", "/statuses", needs=Role.OPERATOR),
    routes=(get("/statuses", statuses, needs=Role.OPERATOR),),
    operations=(api_get("/statuses", "Tenants by status.", tenant_statuses),),
)
'''

TEMPLATE = """
{% extends "base.html" %}
{% block title %}Statuses{% endblock %}
{% block main %}
<h1>Statuses</h1>
<ul>{% for name, count in found.by_status.items() %}<li>{{ name }}: {{ count|plural("tenant") }}</li>{% endfor %}</ul>
{% endblock %}
"""


@pytest.fixture
def address(
    database: Database,
    settings_for: Callable[[Database], Settings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """The dashboard of a source tree with one more page, as a process of its own."""
    package = Path(clientmgr_dashboard.__file__).parent
    tree = tmp_path / "tree"
    shutil.copytree(package, tree / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / package.name / "pages" / "statuses.py").write_text(MODULE)
    (tree / package.name / "templates" / "statuses.html").write_text(TEMPLATE)
    monkeypatch.chdir(tree)  # whence the process imports its packages first

    settings = settings_for(database).model_copy(
        update={"dashboard_port": 0, "dashboard_users_file": str(write_users(tmp_path))}
    )
    with database.connect(Role.OWNER) as connection:
        connection.execute("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (4711, 'activating')")
    with worker(settings, tmp_path, "dashboard") as process:
        process.wait_until_started()
        yield next(word for word in process.log.split('"') if word.startswith("http://127.0.0.1:"))


def test_a_page_is_there_with_its_navigation_its_operation_and_its_entry_in_the_document(address: str) -> None:
    with httpx.Client(base_url=address, cookies={COOKIE: sign_in(address, "otto")}) as operator:
        page = operator.get("/statuses").text
        assert "<li>activating: 1 tenant</li><li>active: 0 tenants</li>" in page
        assert '<li><a href="/statuses" aria-current="page">Statuses</a></li>' in page
        overview = operator.get("/").text
        entries = [overview.index(f">{title}</a></li>") for title in ("Tenants", "Statuses", "Devices")]
        assert entries == sorted(entries), "in the place that its order asks for"

        by_status = operator.get("/api/v1/statuses").json()["byStatus"]
        assert by_status == {"activating": 1, "active": 0, "deleting": 0, "deleted": 0}
        document = operator.get("/api/v1/openapi.json").json()
        assert document["paths"]["/api/v1/statuses"]["get"]["operationId"] == "tenant_statuses"
        assert document["components"]["schemas"]["Statuses"]["description"] == "Tenants by status."

    with httpx.Client(base_url=address, cookies={COOKIE: sign_in(address, "vera")}) as viewer:
        assert viewer.get("/statuses").status_code == 403
        assert ">Statuses</a>" not in viewer.get("/").text


@pytest.fixture
def add_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Add a module to the pages of this process."""

    def add(source: str) -> None:
        (tmp_path / "added.py").write_text(source)
        monkeypatch.setattr(pages, "__path__", [*pages.__path__, str(tmp_path)])
        monkeypatch.delitem(sys.modules, "clientmgr_dashboard.pages.added", raising=False)

    return add


def test_a_module_that_declares_no_page_is_named(add_page: Callable[[str], None]) -> None:
    add_page('"""Nothing to see."""')
    with pytest.raises(TypeError, match=r"clientmgr_dashboard\.pages\.added declares no page"):
        pages.find_pages()


def test_two_operations_with_the_same_address_are_refused(add_page: Callable[[str], None], tmp_path: Path) -> None:
    add_page(MODULE.replace('api_get("/statuses"', 'api_get("/tenants"'))
    with pytest.raises(ValueError, match="two operations are GET /tenants"):
        dashboard(load_settings(data_dir=tmp_path, audit_hash_key=TEST_KEY), 8788)
