"""Read the DOT language, as far as drawing a directed graph with clusters needs it."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from itertools import pairwise

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | ^\#[^\n]*
    | (?P<string> "(?:[^"\\]|\\.)*" )
    | (?P<edge> -> )
    | (?P<mark> [{}\[\];,=:] )
    | (?P<word> [^\W\d]\w* | -?(?:\.\d+|\d+(?:\.\d*)?) )""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
TOP = -1


@dataclass
class Cluster:
    """A subgraph; `parent` is an index in the picture's clusters."""

    parent: int
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass
class Picture:
    """What a DOT file says: nodes and edges with all attributes that apply to them.

    Attributes
    ----------
    attributes
        Of the whole graph.
    nodes
        Name → attributes, in the order of the file.
    edges
        (source, target, attributes).
    cluster_of
        Node → index of the cluster it was first named in, or -1.
    """

    attributes: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    cluster_of: dict[str, int] = field(default_factory=dict)


def parse_dot(text: str) -> Picture:
    """Parse a digraph.

    Raises
    ------
    ValueError
        If the text is not a digraph, or uses what is not supported here: ports, HTML labels,
        subgraphs as ends of edges.
    """
    return _Parser(text).parse()


def unescaped(value: str) -> str:
    r"""Return the text that Graphviz shows for a label: ``\n`` and entities resolved."""
    resolved = _ESCAPE.sub(lambda m: "\n" if m.group(1) in "nlr" else m.group(1), value)
    return html.unescape(resolved)


@dataclass
class _Scope:
    cluster: int
    node: dict[str, str]
    edge: dict[str, str]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._at = 0
        self._picture = Picture()
        self._by_name: dict[str, int] = {}
        self._scopes: list[_Scope] = []

    def parse(self) -> Picture:
        if self._peek() == "strict":
            self._next()
        if self._next() != "digraph":
            raise ValueError("not a DOT digraph; pass what DotRecorder.to_dot() returned")
        if self._peek() != "{":
            self._next()
        self._expect("{")
        self._scopes = [_Scope(TOP, {}, {})]
        while self._scopes:
            self._statement()
        return self._picture

    def _statement(self) -> None:
        token = self._next()
        if token in (";", ","):
            return
        if token == "}":
            self._scopes.pop()
        elif token == "subgraph":
            name = "" if self._peek() == "{" else _value(self._next())
            self._open(name)
        elif token == "{":
            self._at -= 1
            self._open("")
        elif token in ("graph", "node", "edge") and self._peek() == "[":
            self._defaults(token)
        elif self._peek() == "=":
            self._next()
            self._scope_attributes()[_value(token)] = _value(self._next())
        else:
            self._nodes_and_edges(_value(token))

    def _open(self, name: str) -> None:
        self._expect("{")
        outer = self._scopes[-1]
        cluster = self._cluster(name) if name.startswith("cluster") else outer.cluster
        self._scopes.append(_Scope(cluster, dict(outer.node), dict(outer.edge)))

    def _cluster(self, name: str) -> int:
        if name not in self._by_name:
            self._by_name[name] = len(self._picture.clusters)
            self._picture.clusters.append(Cluster(self._scopes[-1].cluster))
        return self._by_name[name]

    def _scope_attributes(self) -> dict[str, str]:
        cluster = self._scopes[-1].cluster
        return self._picture.attributes if cluster == TOP else self._picture.clusters[cluster].attributes

    def _defaults(self, what: str) -> None:
        scope = self._scopes[-1]
        target = {"graph": self._scope_attributes(), "node": scope.node, "edge": scope.edge}[what]
        target.update(self._attributes())

    def _nodes_and_edges(self, name: str) -> None:
        chain = [name]
        while self._peek() == "->":
            self._next()
            chain.append(_value(self._next()))
        attributes = self._attributes()
        scope = self._scopes[-1]
        for node in chain:
            if node not in self._picture.nodes:
                self._picture.nodes[node] = dict(scope.node)
                self._picture.cluster_of[node] = scope.cluster
        if len(chain) == 1:
            self._picture.nodes[name].update(attributes)
            if self._picture.cluster_of[name] == TOP:
                self._picture.cluster_of[name] = scope.cluster
        for source, target in pairwise(chain):
            self._picture.edges.append((source, target, scope.edge | attributes))

    def _attributes(self) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while self._peek() == "[":
            self._next()
            while (token := self._next()) != "]":
                if token in (",", ";"):
                    continue
                self._expect("=")
                attributes[_value(token)] = _value(self._next())
        return attributes

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise ValueError("the DOT text ends too early")
        self._at += 1
        return token

    def _expect(self, wanted: str) -> None:
        token = self._next()
        if token != wanted:
            raise ValueError(f"DOT: expected {wanted!r}, got {token!r}")


def _tokenize(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise ValueError(f"DOT: line {line}: cannot read {text[at : at + 20]!r}")
        if match.lastgroup:
            tokens.append(match.group())
        at = match.end()
    return tokens


def _value(token: str) -> str:
    """Return a word, or a string without its quotes; escapes other than of quotes stay."""
    if token.startswith('"'):
        return re.sub(r'\\(["\\])', lambda m: '"' if m.group(1) == '"' else m.group(), token[1:-1])
    if token in "{}[];,=:->":
        raise ValueError(f"DOT: expected a name, got {token!r}")
    return token
