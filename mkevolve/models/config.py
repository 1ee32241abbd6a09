"""Reads the `model` node of the configuration into a `ModelConfig`, with one clear line for every mistake."""

import difflib
from collections.abc import Mapping, Sequence

from mkevolve.data.candidate import Setting
from mkevolve.data.model_config import InputConfig, ModelConfig
from mkevolve.errors import ConfigError

DTYPES = {
    "float32": "float32", "fp32": "float32", "float": "float32",
    "float16": "float16", "fp16": "float16", "half": "float16",
    "bfloat16": "bfloat16", "bf16": "bfloat16",
    "float64": "float64", "fp64": "float64", "double": "float64",
}  # fmt: skip
MEMORY_FORMATS = ("contiguous", "channels_last")
INPUT_KINDS = ("normal", "tokens", "mask")
_KEYS = {
    "name",
    "build",
    "path",
    "dtype",
    "memory_format",
    "train",
    "random_statistics",
    "inputs",
    "variants",
}


def read_model_config(node: Mapping[str, object]) -> ModelConfig:
    """Read a plain mapping (no OmegaConf types); raises ConfigError naming key, value and cure."""
    unknown = sorted(set(node) - _KEYS)
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(_KEYS), 1)
        cure = f"did you mean model.{near[0]}?" if near else f"keys are {', '.join(sorted(_KEYS))}"
        raise ConfigError(f"model.{unknown[0]} is no key of a model; {cure}")
    build = _mapping(node.get("build") or {}, "model.build")
    path = _text(node.get("path"), "model.path")
    target = _text(build.get("_target_"), "model.build._target_")
    if (target is None) == (path is None):
        raise ConfigError(
            "a model needs either model.path=FILE (with model=file) or a constructor in model.build._target_"
        )
    variants = _variants(node.get("variants") or {})
    inputs = tuple(_input(i) for i in _sequence(node.get("inputs") or (), "model.inputs"))
    if target is not None:
        _check_variants(variants, len(inputs))
    elif variants or inputs:
        raise ConfigError(
            "model.variants and model.inputs are not for model=file; write get_check_inputs() instead"
        )
    return ModelConfig(
        name=_text(node.get("name"), "model.name") or "",
        target=target,
        args=tuple((k, _setting(v, f"model.build.{k}")) for k, v in build.items() if k != "_target_"),
        inputs=inputs,
        variants=variants,
        dtype=read_dtype(node.get("dtype")),
        memory_format=_memory_format(node.get("memory_format")),
        train=_flag(node.get("train", False), "model.train"),
        path=path,
        random_statistics=_flag(node.get("random_statistics", False), "model.random_statistics"),
    )


def read_dtype(value: object) -> str | None:
    """Return torch's name of a dtype (`bf16` is `bfloat16`); None stays None."""
    if value is None:
        return None
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    raise ConfigError(f"model.dtype={value} is unknown; use fp32, fp16 or bf16")


def _memory_format(value: object) -> str | None:
    if value is None or value in MEMORY_FORMATS:
        return None if value is None else str(value)
    raise ConfigError(f"model.memory_format={value} is unknown; use {' or '.join(MEMORY_FORMATS)}")


def _flag(value: object, key: str) -> bool:
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{key}={value} is no flag; use true or false")


def _text(value: object, key: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ConfigError(f"{key}={value} is no text; put it in quotes")


def _setting(value: object, key: str) -> Setting | None:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"{key}={value} is no number, flag or text")


def _mapping(value: object, key: str) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise ConfigError(f"{key}={value} is no mapping")


def _sequence(value: object, key: str) -> Sequence[object]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    raise ConfigError(f"{key}={value} is no list; write it in brackets")


def _input(value: object) -> InputConfig:
    node = _mapping(value, "model.inputs")
    kind, low, high = node.get("kind", "normal"), node.get("low", 0), node.get("high", 2)
    if kind not in INPUT_KINDS:
        raise ConfigError(f"model.inputs kind {kind} is unknown; use {', '.join(INPUT_KINDS)}")
    if not isinstance(low, int) or not isinstance(high, int) or low >= high:
        raise ConfigError(
            f"model.inputs range [{low}, {high}) is empty; low and high are integers, low < high"
        )
    return InputConfig(str(kind), low, high)


def _variants(value: object) -> tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]:
    node = _mapping(value, "model.variants")
    found = []
    for name, shapes in node.items():
        key = f"model.variants.{name}"
        found.append((str(name), tuple(_shape(s, key) for s in _sequence(shapes, key))))
    return tuple(sorted(found, key=lambda item: item[0] != "target"))


def _shape(value: object, key: str) -> tuple[int, ...]:
    sizes: list[int] = []
    for size in _sequence(value, key):
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ConfigError(f"{key} holds the size {size}; write one list of sizes an input, as [[8, 768]]")
        sizes.append(size)
    return tuple(sizes)


def _check_variants(variants: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...], inputs: int) -> None:
    if not variants or variants[0][0] != "target":
        raise ConfigError("model.variants has no target; give model.variants.target=[[SIZE, ...]]")
    for name, shapes in variants:
        if len(shapes) != inputs:
            raise ConfigError(f"model.variants.{name} has {len(shapes)} shapes for {inputs} inputs")
