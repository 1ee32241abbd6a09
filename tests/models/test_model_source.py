import pytest
import torch
import yaml
from torch import nn

from mkevolve.data.graph import TensorSpec
from mkevolve.data.model import Leaf
from mkevolve.data.model_config import InputConfig, ModelConfig
from mkevolve.errors import ConfigError, ModelError
from mkevolve.models.config import read_model_config
from mkevolve.models.inputs import clone_leaf, normalise_call, resample, seeded
from mkevolve.models.source import build_model

NAMES = [
    "resnet_block",
    "resnet_block_64",
    "resnet_bottleneck",
    "transformer_block",
    "swiglu_mlp",
    "vit_attention",
    "convnext_block",
    "mbconv",
    "mlp",
]


def configured(conf_model, name, **changes):
    node = yaml.safe_load((conf_model / f"{name}.yaml").read_text())
    return build_model(read_model_config({**node, **changes}))


@pytest.mark.parametrize("name", NAMES)
def test_configured_models_run_at_their_check_sizes(conf_model, name):
    model = configured(conf_model, name)
    assert model.name == name
    assert model.variants == ("target", "check_1", "check_2")
    assert not model.module.training
    batches = set()
    for variant in model.variants[1:]:
        (x,), kwargs = model.example(variant)
        with torch.no_grad():
            y = model.module(x, **kwargs)
        assert y.isfinite().all()
        assert y.shape[0] == x.shape[0]
        batches.add(x.shape[0])
    assert 1 in batches
    assert len(batches) == 2


def test_statistics_are_random_and_variances_positive(conf_model):
    module = configured(conf_model, "resnet_block").module
    assert module.bn1.running_var.min() >= 0.5
    assert module.bn1.running_var.std() > 0.1
    assert module.bn1.running_mean.abs().max() > 0.1
    assert module.bn1.weight.std() > 0.1


def test_equal_seeds_make_equal_models_and_inputs(conf_model):
    state = torch.get_rng_state()
    first, second = configured(conf_model, "mlp"), configured(conf_model, "mlp")
    assert torch.equal(first.module.up.weight, second.module.up.weight)
    (a,), _ = first.example("check_1", 3)
    (b,), _ = second.example("check_1", 3)
    (c,), _ = second.example("check_1", 4)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), state)


def test_dtype_and_memory_format_reach_weights_and_inputs(conf_model):
    model = configured(conf_model, "resnet_block", dtype="fp16", memory_format="channels_last", train=True)
    (x,), _ = model.example("check_1")
    weight = model.module.conv2.weight
    assert (x.dtype, weight.dtype, model.dtype) == (torch.float16, torch.float16, "float16")
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert model.module.training


def test_unknown_variant_names_those_there_are(conf_model):
    with pytest.raises(ConfigError, match="check_9; it has target, check_1, check_2"):
        configured(conf_model, "mlp").example("check_9")


@pytest.mark.parametrize(
    ("target", "args", "message"),
    [
        ("mkevolve.models.mlp.MPL", (), r"MPL cannot be imported"),
        ("no_such_package.MLP", (), r"cannot be imported"),
        ("mkevolve.models.mlp.MLP", (("widht", 3),), r"cannot be built.*widht"),
        ("pathlib.PurePath", (), r"makes a PurePosixPath, not a torch\.nn\.Module"),
    ],
)
def test_constructors_that_cannot_be_used(target, args, message):
    with pytest.raises(ModelError, match=message):
        build_model(ModelConfig("m", target=target, args=args))


def test_tokens_and_masks_stay_in_range():
    config = ModelConfig(
        "m",
        target="torch.nn.Identity",
        inputs=(InputConfig("tokens", 3, 7), InputConfig("mask")),
        variants=(("target", ((50,), (20, 5))),),
    )
    tokens, mask = build_model(config).example("target")[0]
    assert set(tokens.tolist()) == {3, 4, 5, 6}
    assert (mask.dtype, bool(mask[:, 0].all()), bool(mask.all())) == (torch.bool, True, False)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(6, 8)[::2, 1::3],
        torch.randn(3, 1).expand(3, 5),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.empty(0, 4),
        torch.tensor(2),
        torch.randn(3, requires_grad=True),
    ],
)
def test_a_cloned_leaf_has_its_own_memory_and_the_same_strides(tensor):
    clone = clone_leaf(tensor)
    assert torch.equal(clone, tensor)
    assert clone.stride() == tensor.stride()
    assert not clone.requires_grad
    assert clone.numel() == 0 or clone.data_ptr() != tensor.data_ptr()


def test_resampled_elements_come_from_the_original():
    ids = torch.tensor([[3, 5, 8], [5, 3, 3]])
    leaves = (Leaf(TensorSpec((4, 6), "int64", (1, 4))), Leaf(None, "2"))
    with seeded(0):
        (drawn, two), _ = resample(((ids, 2), {}), leaves)
    assert (tuple(drawn.shape), drawn.stride(), two) == ((4, 6), (1, 4), 2)
    assert set(drawn.flatten().tolist()) == {3, 5, 8}


def test_calls_are_written_by_position_where_the_signature_allows():
    class Takes(nn.Module):
        def forward(self, x, y=None, *, scale=1.0):
            return x

    assert normalise_call(Takes(), (), {"y": 2, "x": 1}) == ((1, 2), {})
    assert normalise_call(Takes(), (1,), {"scale": 3.0}) == ((1,), {"scale": 3.0})
    assert normalise_call(Takes(), (1,), {"nonsense": 3.0}) == ((1,), {"nonsense": 3.0})
