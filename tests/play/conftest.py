"""A real Chromium on the playground's own server; every request to anywhere else is blocked and remembered."""

from __future__ import annotations

import os
import shutil
import threading
from types import SimpleNamespace

import pytest

from cautious_paper.play.server import PlayServer

DESKTOP = {"viewport": {"width": 1360, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
LANDSCAPE = {**PHONE, "viewport": {"width": 844, "height": 390}}
VIEWPORTS = {"desktop": DESKTOP, "phone": PHONE, "landscape": LANDSCAPE}


@pytest.fixture(scope="session")
def server():
    with PlayServer(0) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium: apt-get install chromium, or name one in the variable CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, server):
    """Opens a tab; `complaints` are console errors, exceptions and requests to elsewhere, which a test may take back."""
    contexts, complaints = [], []

    def open_tab(tab="draw", *, viewport="desktop", before=None, **options):
        context = chromium.new_context(**VIEWPORTS[viewport], **options)
        context.set_default_timeout(60_000)
        contexts.append(context)

        def guard(route):
            if route.request.url.startswith((server.address, "data:", "blob:")):
                route.continue_()
            else:
                complaints.append(f"asked for {route.request.url}")
                route.abort()

        context.route("**/*", guard)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if before is not None:
            before(page)
        page.goto(f"{server.address}#{tab}")
        return page

    yield SimpleNamespace(open=open_tab, complaints=complaints)
    for context in contexts:
        context.close()
    assert complaints == []
