"""The dashboard's pages. Every module here is one and declares `PAGE`; a page is added by adding its module."""

import importlib
import pkgutil

from clientmgr_dashboard.web.page import DashboardPage


def find_pages() -> list[DashboardPage]:
    """All pages, in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    pages = [_page(f"{__name__}.{name}") for name in names]
    return sorted(pages, key=lambda page: page.order)


def _page(name: str) -> DashboardPage:
    page = getattr(importlib.import_module(name), "PAGE", None)
    if not isinstance(page, DashboardPage):
        raise TypeError(f"{name} declares no page: PAGE = DashboardPage(…)")
    return page
