"""A browser for the pages of runs: Debian's Chromium or another one on the PATH, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")  # its event loop must not run on beside tests of coroutines
def browser() -> Iterator[Any]:
    """A browser, for the tests of a module."""
    api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium on the PATH")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages; at the end none may have had an error, or asked the network for anything."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def opened(path: Path, **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        contexts.append(context)
        context.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        context.on("request", lambda request: note_request(request.url))
        page = context.new_page()
        page.set_default_timeout(5_000)
        page.goto(path.as_uri())
        page.locator("body:not(.loading)").wait_for()
        return page

    def note_request(url: str) -> None:
        if not url.startswith(("file:", "blob:", "data:")):
            complaints.append(url)

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
