"""YAML text as a tree whose every node knows its place.

Read from the parser's events and not with `yaml.compose`: that recurses, looks at aliases however
often they occur, takes the last of two equal keys, and turns `no` and `1.10` into something else
before anybody has asked what they are for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pubsub_aio.emulator.seeds.mistakes import Mistakes, joined
from pubsub_aio.errors import MissingExtraError

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 40
"""How deep a file may nest; the API's messages need a dozen levels."""

MAX_NODES = 500_000
"""How much there may be in a file, with everything counted as often as an alias repeats it."""

_STR = "tag:yaml.org,2002:str"
_NULLS = {"", "~", "null", "Null", "NULL"}
_MERGE = "<<"


@dataclass(slots=True, eq=False)
class Node:
    """Something in the file, and where: line and column count from one."""

    line: int
    column: int
    weight: int = field(default=1, init=False)
    """How many nodes it is, with those below it."""


@dataclass(slots=True, eq=False)
class Scalar(Node):
    """A text as it is written, and whether it is without quotes."""

    text: str
    plain: bool

    @property
    def is_null(self) -> bool:
        """Whether nothing is given."""
        return self.plain and self.text in _NULLS


@dataclass(slots=True, eq=False)
class Sequence(Node):
    """A list."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Mapping(Node):
    """Keys and values, each key once, with what `<<` merges into it."""

    entries: list[tuple[Scalar, Node]] = field(default_factory=list)

    def get(self, key: str) -> Node | None:
        """The value of a key."""
        return next((value for name, value in self.entries if name.text == key), None)


def read_tree(text: str, mistakes: Mistakes) -> Node | None:
    """The tree of a text; none if there is nothing in it.

    Raises:
        SeedError: It is not YAML, or cannot be taken as a tree.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("a seed file", "emulator") from error

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(mistakes)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = Node(mark.line + 1, mark.column + 1) if mark else None
        raise mistakes.stop(at, "", _in_words(error)) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        at = Node(before.count("\n") + 1, len(before) - before.rfind("\n"))
        what = f"not YAML: the character {error.character!r} cannot stand here"
        raise mistakes.stop(at, "", what) from error
    return builder.root


def _in_words(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context or "cannot be understood")
    context = f" ({error.context})" if error.problem and error.context else ""
    remedy = "; indent with spaces" if "\\t" in problem or "tab" in problem else ""
    return f"not YAML: {problem}{context}{remedy}"


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come."""

    node: Sequence | Mapping
    path: str
    anchor: str | None
    counted: int
    key: Scalar | None = None
    keys: set[str] = field(default_factory=set)


class _Builder:
    """Builds the tree from events, without recursion."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.root: Node | None = None
        self._mistakes = mistakes
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def take(self, event: yaml.Event) -> None:
        """Go on with the parser's next event."""
        kind = type(event).__name__
        if kind == "ScalarEvent":
            self._scalar(event)
        elif kind == "AliasEvent":
            self._alias(event)
        elif kind in ("SequenceStartEvent", "MappingStartEvent"):
            self._begin(event, Sequence if kind.startswith("Seq") else Mapping)
        elif kind in ("SequenceEndEvent", "MappingEndEvent"):
            self._end()
        elif kind == "DocumentStartEvent" and self.root is not None:
            raise self._mistakes.stop(_place(event), "", "a second document begins: give one")

    def _scalar(self, event: yaml.Event) -> None:
        place = _place(event)
        self._check_tag(event, place)
        plain = event.style is None or event.style == ""  # type: ignore[attr-defined]
        if event.tag == _STR:  # type: ignore[attr-defined]
            plain = False
        text: str = event.value  # type: ignore[attr-defined]
        node = Scalar(place.line, place.column, text, plain)
        self._weigh(1, place)
        self._remember(event.anchor, node)  # type: ignore[attr-defined]
        self._add(node)

    def _alias(self, event: yaml.Event) -> None:
        name: str = event.anchor  # type: ignore[attr-defined]
        place = _place(event)
        node = self._anchors.get(name)
        if node is None:
            inside = any(opened.anchor == name for opened in self._open)
            why = (
                "stands inside of what it repeats" if inside else "repeats nothing: no such anchor"
            )
            raise self._mistakes.stop(place, self._path(), f"the alias *{name} {why}")
        self._weigh(node.weight, place)
        self._add(node)

    def _begin(self, event: yaml.Event, kind: type[Sequence | Mapping]) -> None:
        place = _place(event)
        self._check_tag(event, place)
        if len(self._open) >= MAX_DEPTH:
            raise self._mistakes.stop(place, "", f"nested deeper than {MAX_DEPTH} levels")
        anchor: str | None = event.anchor  # type: ignore[attr-defined]
        if anchor:
            self._anchors.pop(anchor, None)
        node = kind(place.line, place.column)
        self._open.append(_Open(node, self._path(), anchor, self._count))
        self._weigh(1, place)

    def _end(self) -> None:
        ended = self._open.pop()
        node = ended.node
        node.weight = self._count - ended.counted
        if isinstance(node, Mapping):
            self._merge(node, ended.path)
        self._remember(ended.anchor, node)
        self._add(node)

    def _add(self, node: Node) -> None:
        """Put a finished node where it belongs."""
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if isinstance(parent.node, Sequence):
            parent.node.items.append(node)
        elif parent.key is not None:
            parent.node.entries.append((parent.key, node))
            parent.key = None
        elif isinstance(node, Scalar):
            if node.text in parent.keys:
                path = joined(parent.path, node.text)
                self._mistakes.add(node, path, "is given twice: leave one of them out")
            parent.keys.add(node.text)
            parent.key = node
        else:
            raise self._mistakes.stop(node, parent.path, "a key must be a name, not a list or a {}")

    def _merge(self, node: Mapping, path: str) -> None:
        """Replace `<<` by the keys of what it names; those that are given here win."""
        merges = [value for key, value in node.entries if key.text == _MERGE and key.plain]
        if not merges:
            return
        node.entries = [entry for entry in node.entries if entry[0].text != _MERGE]
        known = {key.text for key, _ in node.entries}
        for value in merges:
            for source in value.items if isinstance(value, Sequence) else [value]:
                if not isinstance(source, Mapping):
                    self._mistakes.add(source, joined(path, _MERGE), "must be settings, as *name")
                    continue
                for key, merged in source.entries:
                    if key.text not in known:
                        known.add(key.text)
                        node.entries.append((key, merged))

    def _path(self) -> str:
        """The path of the node that begins now."""
        if not self._open:
            return ""
        parent = self._open[-1]
        if isinstance(parent.node, Sequence):
            return f"{parent.path}[{len(parent.node.items)}]"
        return joined(parent.path, parent.key.text) if parent.key else parent.path

    def _weigh(self, weight: int, place: Node) -> None:
        self._count += weight
        if self._count > MAX_NODES:
            what = f"more than {MAX_NODES:,} values, with what the aliases repeat: make it smaller"
            raise self._mistakes.stop(place, "", what)

    def _remember(self, anchor: str | None, node: Node) -> None:
        if anchor:
            self._anchors[anchor] = node

    def _check_tag(self, event: yaml.Event, place: Node) -> None:
        tag: str | None = event.tag  # type: ignore[attr-defined]
        if tag is not None and tag not in (_STR, "!"):
            shown = tag.replace("tag:yaml.org,2002:", "!!")[:80]
            self._mistakes.add(place, self._path(), f"the tag {shown} has no meaning here")


def _place(event: yaml.Event) -> Node:
    mark = event.start_mark
    return Node(mark.line + 1, mark.column + 1) if mark else Node(1, 1)
