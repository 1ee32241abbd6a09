"""Each combination of dtype, policy and size has its own folder; the defaults have the plain name."""

from dataclasses import replace

import pytest

from mkevolve.data.model import Precision
from mkevolve.data.model_config import InputConfig, ModelConfig
from mkevolve.naming import chip_part, folder_name

DEFAULT = ModelConfig(
    "m", "a.B", (("width", 8),), (InputConfig(),), (("target", ((2, 8),)),), "float32", "contiguous"
)


@pytest.mark.parametrize(
    ("change", "precision", "expected"),
    [
        ({}, Precision.IEEE, "m"),
        ({"dtype": "bfloat16"}, Precision.IEEE, "m-bf16"),
        ({}, Precision.TF32, "m-tf32"),
        ({"memory_format": "channels_last"}, Precision.IEEE, "m-channels_last"),
        ({"train": True}, Precision.IEEE, "m-train"),
        ({"args": (("width", 16),)}, Precision.IEEE, "m-width16"),
        ({"variants": (("target", ((4, 8),)),)}, Precision.IEEE, "m-4x8"),
        (
            {"dtype": "float16", "variants": (("target", ((4, 8), (3,))),)},
            Precision.TF32,
            "m-fp16-tf32-4x8_3",
        ),
    ],
)
def test_folder_name(change: dict, precision: Precision, expected: str) -> None:
    assert folder_name("m", replace(DEFAULT, **change), DEFAULT, precision) == expected


def test_another_chip_is_another_folder() -> None:
    assert chip_part("h200") == ""  # what conf/config.yaml says
    assert folder_name("m", DEFAULT, DEFAULT, Precision.IEEE, chip_part("h200")) == "m"
    assert folder_name("m", DEFAULT, DEFAULT, Precision.IEEE, chip_part("a100")) == "m-a100"
