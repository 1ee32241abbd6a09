import pytest
import yaml

from mkevolve.data.codec import decode, encode
from mkevolve.data.model_config import InputConfig, ModelConfig
from mkevolve.errors import ConfigError
from mkevolve.models.config import read_dtype, read_model_config

GOOD = {
    "name": "block",
    "build": {"_target_": "mkevolve.models.mlp.MLP", "width": 8, "hidden": 16},
    "dtype": "bf16",
    "inputs": [{"kind": "normal"}, {"kind": "tokens", "high": 9}],
    "variants": {"check_1": [[3, 8], [3]], "target": [[4, 8], [4]]},
}


def test_target_comes_first_and_names_are_torchs():
    config = read_model_config(GOOD)
    assert config.variants == (("target", ((4, 8), (4,))), ("check_1", ((3, 8), (3,))))
    assert config.inputs == (InputConfig("normal"), InputConfig("tokens", 0, 9))
    assert (config.dtype, config.args) == ("bfloat16", (("width", 8), ("hidden", 16)))
    assert decode(ModelConfig, encode(config)) == config


@pytest.mark.parametrize(("name", "torchs"), [("fp32", "float32"), ("half", "float16"), (None, None)])
def test_dtype_names(name, torchs):
    assert read_dtype(name) == torchs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "fp12"}, r"model\.dtype=fp12 .*fp32, fp16 or bf16"),
        ({"memory_format": "nhwc"}, r"model\.memory_format=nhwc .*channels_last"),
        ({"train": "yes"}, r"model\.train=yes .*true or false"),
        ({"dtyp": "fp32"}, r"model\.dtyp is no key.*model\.dtype"),
        ({"build": {}}, r"model\.path=FILE"),
        ({"path": "x.py"}, r"model\.path=FILE"),
        ({"build": {"_target_": 3}}, r"_target_=3 is no text"),
        ({"build": {"_target_": "a.B", "width": [1]}}, r"model\.build\.width=\[1\]"),
        ({"variants": {"check_1": [[3, 8], [3]]}}, r"no target"),
        ({"variants": {"target": [[3, 8]]}}, r"1 shapes for 2 inputs"),
        ({"variants": {"target": [[3, "8"], [3]]}}, r"holds the size 8"),
        ({"variants": {"target": [3, 8]}}, r"target=3 is no list"),
        ({"inputs": [{"kind": "noise"}, {}]}, r"kind noise"),
        ({"inputs": [{"kind": "tokens", "low": 4, "high": 4}, {}]}, r"\[4, 4\) is empty"),
    ],
)
def test_mistakes_name_the_value_and_the_cure(change, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read_model_config({**GOOD, **change})
    assert "\n" not in str(caught.value)


def test_a_file_takes_its_sizes_from_get_inputs():
    config = read_model_config({"path": "~/m.py", "name": None, "dtype": None, "train": True})
    assert (config.path, config.target, config.train) == ("~/m.py", None, True)
    with pytest.raises(ConfigError, match="get_check_inputs"):
        read_model_config({"path": "m.py", "variants": {"target": [[1]]}})


def test_the_file_of_the_file_model_is_readable_once_it_has_a_path(conf_model):
    node = yaml.safe_load((conf_model / "file.yaml").read_text())
    with pytest.raises(ConfigError, match=r"model\.path=FILE"):
        read_model_config(node)
    assert read_model_config({**node, "path": "m.py"}).path == "m.py"
