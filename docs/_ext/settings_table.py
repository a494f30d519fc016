"""The directive ``settings-table``: every setting of `stf.config`, as a table."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from stf import config

UNITS = {512 << 20: "512MiB", 256 << 20: "256MiB"}


class SettingsTable(SphinxDirective):
    """One row per variable: name, attribute, default, meaning."""

    def run(self) -> list[nodes.Node]:
        rows = [["variable", "default", "meaning"]]
        for setting in config.SETTINGS:
            default = "unset" if setting.default is None else UNITS.get(setting.default, str(setting.default))
            default = {"True": "1", "False": "0"}.get(default, default)
            rows.append([f"`{setting.variable}`", default, setting.description])
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|---|---|---|")
        container = nodes.Element()
        self.state.nested_parse(self._as_list(lines), self.content_offset, container)
        return list(container.children)

    def _as_list(self, lines: list[str]):
        from docutils.statemachine import StringList

        return StringList(lines, source="settings-table")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True}
