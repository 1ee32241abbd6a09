"""Reads YAML with the place of every value, so that a mistake is told by its line and field."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from mkevolve.data.codec import Json
from mkevolve.errors import CompositionError


@dataclass(frozen=True)
class Entry:
    """A value in a file: its node, and the way to it (`slots[2].implementation`)."""

    file: Path
    way: str
    node: yaml.Node

    def __getitem__(self, name: str) -> "Entry":
        """A field of a mapping that must be there."""
        found = self.get(name)
        if found is None:
            raise self.fault(f"the field {name!r} is missing")
        return found

    def get(self, name: str) -> "Entry | None":
        """A field of a mapping, or None."""
        return dict(self.fields()).get(name)

    def fields(self) -> Iterator[tuple[str, "Entry"]]:
        """The fields of a mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.fault("a mapping is expected")
        for key, value in self.node.value:
            name = str(key.value)
            yield name, Entry(self.file, f"{self.way}.{name}" if self.way else name, value)

    def items(self) -> Iterator["Entry"]:
        """The items of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fault("a list is expected")
        for i, value in enumerate(self.node.value):
            yield Entry(self.file, f"{self.way}[{i}]", value)

    def text(self) -> str:
        """A scalar as it is written, whatever YAML would make of it."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.fault("a text is expected")
        return str(self.node.value)

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def number(self) -> float:
        try:
            return float(self.text())
        except ValueError:
            raise self.fault(f"{self.text()!r} is not a number") from None

    def integers(self) -> tuple[int, ...]:
        found = []
        for item in self.items():
            try:
                found.append(int(item.text()))
            except ValueError:
                raise item.fault(f"{item.text()!r} is not an integer") from None
        return tuple(found)

    def plain(self) -> Json:
        """The value as YAML reads it."""
        return _plain(self.node)

    def is_null(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:null"

    def fault(self, message: str) -> CompositionError:
        """An error that names the file, the line and the field."""
        where = f" ({self.way})" if self.way else ""
        return CompositionError(f"{self.file}:{self.node.start_mark.line + 1}{where}: {message}")


def read_yaml(path: Path) -> Entry:
    """Parse a file. Raises `CompositionError` where it is missing, unreadable or no YAML mapping."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise CompositionError(f"{path}: {error.strerror}; give the path of a composition.yaml") from None
    except UnicodeDecodeError:
        raise CompositionError(f"{path}: not UTF-8 text; give the path of a composition.yaml") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise CompositionError(f"{path}{line}: not YAML: {problem}; correct this line") from None
    if not isinstance(node, yaml.MappingNode):
        raise CompositionError(f"{path}: not a composition; give the path of a composition.yaml")
    return Entry(path, "", node)


def _plain(node: yaml.Node) -> Json:
    if isinstance(node, yaml.MappingNode):
        return {str(k.value): _plain(v) for k, v in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(v) for v in node.value]
    text = str(node.value)
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() in ("true", "yes", "on")
        case "int":
            return int(text, 0)
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
