"""Verifies candidate files against the subjects that they name."""

import re
from pathlib import Path

import torch
from kernel_subjects import KERNEL_SUBJECTS
from verify_subjects import SUBJECTS

from mkevolve.data.candidate import Configuration
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Tier
from mkevolve.interfaces import Backend
from mkevolve.measure.chips import load_chip
from mkevolve.search.params import default_configuration
from mkevolve.verify.engine import Finding, Verifier
from mkevolve.verify.references import References

TESTS = Path(__file__).parent.parent
TUTORIALS = sorted((TESTS / "tutorials").glob("*.py"))
HONEST = sorted((TESTS / "honest").glob("*.py"))
CALIBRATION = sorted((TESTS / "calibration" / "kernels").glob("*.py"))
_CALIBRATED = {
    "add_gelu_columns": "add_gelu",
    "conv_fp32": "conv",
    "conv_nhwc": "conv",
    "depthwise_nhwc": "depthwise",
    "matmul_fp32": "linear_gelu",
    "matmul_gelu": "linear_gelu",
    "softmax_row": "softmax",
    "softmax_three_pass": "softmax",
}
_SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "BLOCK": 128, "ROWS": 4, "PIX": 16, "COLS": 32}


def named_subject(path: Path, source: str) -> tuple[str, torch.dtype]:
    """Name and dtype of the subject of a file: `name:` or `name float16:` at the start of its docstring.

    The calibration kernels are measured as they are, in half precision unless they say otherwise.
    """
    if path.parent.name == "kernels":
        dtype = torch.float32 if path.stem.endswith("_fp32") else torch.float16
        return _CALIBRATED.get(path.stem, path.stem), dtype
    found = re.match(r'(?:#.*\n)?"""(\w+)(?: (\w+))?:', source)
    assert found is not None, f"{path.name} names no subject"
    return found[1], getattr(torch, found[2] or "float32")


class Bench:
    """A verifier with the references of every subject so far."""

    def __init__(self, backend: Backend) -> None:
        self._verifier = Verifier(backend, load_chip("h200"), Precision.IEEE)
        self._known: dict[tuple[str, torch.dtype], tuple[Subgraph, References]] = {}

    def find(
        self, path: Path, tier: Tier, source: str | None = None, configuration: Configuration | None = None
    ) -> Finding:
        """Verify a file, or another text in its place, in its default configuration if none is given."""
        text = path.read_text() if source is None else source
        key = named_subject(path, text)
        if key not in self._known:
            torch.manual_seed(0)
            subgraph, seen = (SUBJECTS | KERNEL_SUBJECTS)[key[0]](key[1])
            self._known[key] = subgraph, References(subgraph, seen)
        chosen = configuration or (
            _small(text) if path.parent.name == "kernels" else default_configuration(text)
        )
        return self._verifier.verify(*self._known[key], text, chosen, tier)


def _small(source: str) -> Configuration:
    """The default, with smaller blocks: interpreting and compiling large ones takes seconds."""
    settings = default_configuration(source).settings
    return Configuration(
        tuple((k, min(v, _SMALL.get(k, v)) if isinstance(v, int) else v) for k, v in settings)
    )
