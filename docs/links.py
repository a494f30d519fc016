"""Follow every link of the built site: ``python docs/links.py build/docs``. Dead ones are an error."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and what its anchors are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """Return the links within the site that lead nowhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            anchor = unquote(parts.fragment)
            if not target.exists() or (known is not None and anchor not in known.anchors):
                dead.append(f"{path.relative_to(site.resolve())}: {link}")
    return dead


def main() -> int:
    site = Path(sys.argv[1])
    dead = dead_links(site)
    for line in dead:
        print(f"dead link in {line}", file=sys.stderr)
    if not (site / "index.html").exists():
        print(f"there is no site in {site}; build it with make docs", file=sys.stderr)
        return 2
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
