"""The folder of a composition: the model's name, and what differs from its defaults."""

import hashlib
from pathlib import Path

import yaml

from mkevolve.data.model import Precision
from mkevolve.data.model_config import ModelConfig
from mkevolve.paths import conf_dir

_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


def chip_part(chip: str) -> str:
    """The chip's name, or nothing for the one that `conf/config.yaml` names."""
    settings = yaml.safe_load((conf_dir() / "config.yaml").read_text(encoding="utf-8"))
    return "" if chip == settings["chip"] else chip


def path_part(path: Path) -> str:
    """Six hex digits that tell model files of one name apart."""
    return hashlib.sha256(str(path).encode()).hexdigest()[:6]


def folder_name(
    model: str, config: ModelConfig, default: ModelConfig, precision: Precision, chip: str = ""
) -> str:
    """`resnet_block`, or `resnet_block-a100-bf16-tf32-1x3x64x64` where these were overridden.

    `default` is the configuration without overrides; `ieee` is the default policy; `chip` is that of
    `chip_part`.
    """
    parts = [model, *([chip] if chip else [])]
    if config.dtype != default.dtype and config.dtype is not None:
        parts.append(_SHORT.get(config.dtype, config.dtype))
    if precision is not Precision.IEEE:
        parts.append(precision.value)
    if config.memory_format != default.memory_format and config.memory_format is not None:
        parts.append(config.memory_format)
    if config.train != default.train:
        parts.append("train" if config.train else "eval")
    if config.args != default.args:
        changed = [f"{k}{v}" for k, v in config.args if (k, v) not in default.args]
        parts.extend(_safe(text) for text in changed)
    target, usual = (dict(c.variants).get("target", ()) for c in (config, default))
    if target != usual:
        parts.append("_".join("x".join(map(str, shape)) for shape in target))
    return "-".join(parts)


def _safe(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "_" for c in text)
