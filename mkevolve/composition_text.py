"""The text of a composition file: from a `Composition` to YAML that people edit, and back."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from mkevolve.data.candidate import Configuration, Setting
from mkevolve.data.codec import Json
from mkevolve.data.composition import Composition, KernelEntry, Signature, SlotChoice
from mkevolve.data.decomposition import Copy, Decomposition, Slot
from mkevolve.data.graph import TensorSpec
from mkevolve.data.measurement import Clock, Environment, Measurement
from mkevolve.data.model import Leaf
from mkevolve.yaml_reader import Entry, read_yaml

FORMAT = 1

_HEAD = """\
# A composition of mkevolve: how a model is cut into slots, and what fills each of them.
# To change a slot, edit its `implementation` line: the path of a kernel file (relative to this file), the
# `k_` id of a kernel listed below, `eager` or `compile`. Then run: mkevolve check composition=FILE
"""
_KERNELS = (
    "# Written by mkevolve: what was verified of each kernel. `check` and `swap` keep this part up to date.\n"
)


class _Dumper(yaml.SafeDumper):
    """Writes lists of plain values, and each `_Line`, on one line."""

    def represent_sequence(
        self, tag: str, sequence: Iterable[object], flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        rows = list(sequence)
        flat = all(not isinstance(r, dict) for r in rows)
        return super().represent_sequence(tag, rows, flow_style=flat if flow_style is None else flow_style)

    def ignore_aliases(self, data: object) -> bool:
        return True


class _Line(dict[str, Json]):
    """A mapping that is written on one line."""


_Dumper.add_representer(
    _Line, lambda dumper, row: dumper.represent_mapping("tag:yaml.org,2002:map", row, flow_style=True)
)
# `torch.__version__` is a subclass of str
_Dumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(str(text)))


def to_text(composition: Composition) -> str:
    """Write a composition as YAML."""
    env = composition.environment
    head: dict[str, Json] = {
        "mkevolve": FORMAT,
        "model": composition.model,
        "made_by": list(composition.made_by),
        "dtype": composition.signature.dtype,
        "mode": "train" if composition.signature.training else "eval",
        "precision": env.precision,
        "clock": env.clock.value,
        "chip": env.chip,
        "environment": {
            "id": env.id,
            **{k: getattr(env, k) for k in ("driver", "torch", "triton", "verifier", "cost_model")},
        },
    }
    variants: dict[str, Json] = {
        name: [_leaf(leaf) for leaf in leaves] for name, leaves in composition.signature.variants
    }
    inputs: dict[str, Json] = {"variants": variants, "arguments": composition.signature.in_tree}
    slots: dict[str, Json] = {"slots": [_slot(choice) for choice in composition.slots]}
    machine: dict[str, Json] = {
        "kernels": [_kernel(entry) for entry in composition.kernels],
        "written": dict(composition.written),
        "written_files": dict(composition.written_files),
    }
    cut: dict[str, Json] = {"decomposition": _decomposition(composition.decomposition)}
    parts = [_HEAD, _dump(head), _dump(slots), _dump(inputs), _dump(cut), _KERNELS + _dump(machine)]
    return "\n".join(parts)


def _dump(value: Mapping[str, Json]) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def _leaf(leaf: Leaf) -> Json:
    if leaf.spec is None:
        return {"value": leaf.literal}
    shape: list[Json] = [*leaf.spec.shape]
    stride: list[Json] = [*leaf.spec.stride]
    return _Line(shape=shape, dtype=leaf.spec.dtype, stride=stride)


def _slot(choice: SlotChoice) -> Json:
    slot = choice.slot
    row: dict[str, Json] = {
        "name": slot.name,
        "implementation": choice.implementation,
        "ops": slot.ops,
        "subgraph": slot.subgraph,
    }
    if choice.reason:
        row["reason"] = choice.reason
    if choice.fallback is not None:
        row["fallback"] = _Line(_figure(choice.fallback))
    if choice.alternatives:
        row["alternatives"] = [
            _Line(implementation=name, **(_figure(time) if time is not None else {}))
            for name, time in choice.alternatives
        ]
    row.update(nodes=list(slot.nodes), inputs=list(slot.inputs), outputs=list(slot.outputs))
    return row


def _figure(time: Measurement) -> dict[str, Json]:
    """A time for people: four digits, without what made it up."""
    us, low, high = (float(f"{v:.4g}") for v in (time.us, time.low, time.high))
    return {"us": us, "low": low, "high": high, "clock": time.clock.value}


def _time(time: Measurement) -> dict[str, Json]:
    row = _Line(us=time.us, low=time.low, high=time.high, clock=time.clock.value)
    return row if not time.terms else {**row, "terms": _Line(dict(time.terms))}


def _kernel(entry: KernelEntry) -> Json:
    row: dict[str, Json] = {
        "id": entry.id,
        "path": entry.path,
        "sha256": entry.sha256,
        "subgraph": entry.subgraph,
        "evidence": entry.evidence,
        "configurations": {name: _Line(dict(c.settings)) for name, c in entry.configurations},
    }
    if entry.verified:
        row["verified"] = entry.verified
    if entry.measurement is not None:
        row["measurement"] = _time(entry.measurement)
    if entry.error is not None:
        row["error"] = entry.error
    if entry.allowed is not None:
        row["allowed"] = entry.allowed
    return row


def _decomposition(cut: Decomposition) -> Json:
    return {
        "id": cut.id,
        "parent": cut.parent,
        "mutation": cut.mutation,
        "formats": dict(cut.formats),
        "copies": [_Line(node=c.node, name=c.name, consumers=list(c.consumers)) for c in cut.copies],
        "partitions": [list(p) for p in cut.partitions],
    }


def from_file(path: Path) -> Composition:
    """Read a composition. Raises `CompositionError` naming file, line and field."""
    root = read_yaml(path)
    version = root.get("mkevolve")
    if version is None:
        raise root.fault("no composition of mkevolve: the field 'mkevolve' is missing")
    if version.text() != str(FORMAT):
        raise version.fault(f"format {version.text()} is not known to this version, which reads {FORMAT}")
    slots = tuple(_read_slot(entry) for entry in root["slots"].items())
    names = [choice.slot.name for choice in slots]
    for entry, name in zip(root["slots"].items(), names, strict=True):
        if names.count(name) > 1:
            raise entry.fault(f"two slots are named {name!r}")
    written, files = root.get("written"), root.get("written_files")
    return Composition(
        model=root["model"].text(),
        decomposition=_read_decomposition(root["decomposition"]),
        slots=slots,
        kernels=tuple(_read_kernel(entry) for entry in root["kernels"].items()),
        environment=_read_environment(root),
        signature=_read_signature(root),
        made_by=root["made_by"].texts() if root.get("made_by") is not None else (),
        written=tuple((k, v.text()) for k, v in written.fields()) if written is not None else (),
        written_files=tuple((k, v.text()) for k, v in files.fields()) if files is not None else (),
    )


def _read_environment(root: Entry) -> Environment:
    row = root["environment"]
    return Environment(
        clock=_read_clock(root["clock"]),
        chip=root["chip"].text(),
        precision=root["precision"].text(),
        **{k: row[k].text() for k in ("driver", "torch", "triton", "verifier", "cost_model")},
    )


def _read_signature(root: Entry) -> Signature:
    mode = root["mode"]
    if mode.text() not in ("eval", "train"):
        raise mode.fault(f"{mode.text()!r} is neither eval nor train")
    variants = tuple(
        (name, tuple(_read_leaf(leaf) for leaf in row.items())) for name, row in root["variants"].fields()
    )
    if not variants or variants[0][0] != "target":
        raise root["variants"].fault("the first variant must be 'target'")
    return Signature(root["dtype"].text(), mode.text() == "train", root["arguments"].text(), variants)


def _read_leaf(entry: Entry) -> Leaf:
    value = entry.get("value")
    if value is not None:
        return Leaf(None, value.text())
    return Leaf(TensorSpec(entry["shape"].integers(), entry["dtype"].text(), entry["stride"].integers()))


def _read_slot(entry: Entry) -> SlotChoice:
    slot = Slot(
        name=entry["name"].text(),
        subgraph=entry["subgraph"].text(),
        nodes=entry["nodes"].texts(),
        inputs=entry["inputs"].texts(),
        outputs=entry["outputs"].texts(),
        ops=entry["ops"].text(),
    )
    implementation = entry["implementation"]
    if implementation.is_null() or not implementation.text():
        raise implementation.fault("empty; give a kernel's path or k_ id, eager or compile")
    reason, fallback, others = (entry.get(k) for k in ("reason", "fallback", "alternatives"))
    return SlotChoice(
        slot=slot,
        implementation=implementation.text(),
        reason=reason.text() if reason is not None else "",
        alternatives=tuple(
            (row["implementation"].text(), _read_time(row) if row.get("us") is not None else None)
            for row in (others.items() if others is not None else ())
        ),
        fallback=_read_time(fallback) if fallback is not None else None,
    )


def _read_time(entry: Entry) -> Measurement:
    terms = entry.get("terms")
    return Measurement(
        clock=_read_clock(entry["clock"]),
        us=entry["us"].number(),
        low=entry["low"].number(),
        high=entry["high"].number(),
        terms=tuple((k, v.number()) for k, v in terms.fields()) if terms is not None else (),
    )


def _read_clock(entry: Entry) -> Clock:
    try:
        return Clock(entry.text())
    except ValueError:
        raise entry.fault(f"{entry.text()!r} is neither device nor model") from None


def _read_kernel(entry: Entry) -> KernelEntry:
    measurement, error, allowed, verified = (
        entry.get(k) for k in ("measurement", "error", "allowed", "verified")
    )
    return KernelEntry(
        **{k: entry[k].text() for k in ("id", "path", "sha256", "subgraph", "evidence")},
        configurations=tuple(
            (name, Configuration(tuple((k, _read_setting(v)) for k, v in row.fields())))
            for name, row in entry["configurations"].fields()
        ),
        measurement=_read_time(measurement) if measurement is not None else None,
        error=error.number() if error is not None else None,
        allowed=allowed.number() if allowed is not None else None,
        verified=verified.text() if verified is not None else "",
    )


def _read_setting(entry: Entry) -> Setting:
    value = entry.plain()
    if isinstance(value, bool | int | float | str):
        return value
    raise entry.fault("a setting is a number, a truth value or a text")


def _read_decomposition(entry: Entry) -> Decomposition:
    parent, mutation = entry["parent"], entry["mutation"]
    return Decomposition(
        partitions=tuple(row.texts() for row in entry["partitions"].items()),
        formats=tuple((k, v.text()) for k, v in entry["formats"].fields()),
        copies=tuple(
            Copy(row["node"].text(), row["name"].text(), row["consumers"].texts())
            for row in entry["copies"].items()
        ),
        parent=None if parent.is_null() else parent.text(),
        mutation=None if mutation.is_null() else mutation.text(),
    )
