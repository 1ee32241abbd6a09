"""Every case of tests/cases/models behaves, at capture, as its docstring says."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from capture_cases import Replay, both
from torch.utils import _pytree as pytree

from mkevolve.capture import capture, check_capture, constants_of
from mkevolve.data.model_config import ModelConfig
from mkevolve.errors import CaptureError
from mkevolve.models.source import build_model

CASES = sorted((Path(__file__).parents[1] / "cases" / "models").glob("*.py"))


def expected(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    return re.search(r"Expected: (\w+)(.*)", text, re.DOTALL)


def build(name):
    return build_model(ModelConfig("", path=str(next(p for p in CASES if p.stem == name))), seed=0)


@cache
def captured_case(name):
    return capture(build(name))


def case(name):
    return build(name), captured_case(name)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_case(path):
    kind, words = expected(path).groups()
    model = build(path.stem)
    if kind == "error":
        with pytest.raises(CaptureError) as caught:
            capture(model)
        named = {"branch_on_value": ["data-dependent", f"{path}:20", "if x.abs()"]}
        for word in named.get(path.stem, ["last_hidden", "buffer"]):
            assert word in str(caught.value)
        assert all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in tensors_of(model.module))
        return
    assert kind == "match", words
    before = build(path.stem).module.state_dict()
    captured = captured_case(path.stem)
    check_capture(model, captured)
    for variant in captured.variants:
        for (want, call, module), (got, other_call, replay) in both(model, captured, variant, seed=5):
            assert pytree.tree_structure(got) == pytree.tree_structure(want)
            torch.testing.assert_close(got, want, equal_nan=True, check_stride=0 not in strides(want))
            torch.testing.assert_close(other_call, call)
            for mutation in captured.mutations:
                torch.testing.assert_close(replay.buffer(mutation.target), module.get_buffer(mutation.target))
    assert all(torch.equal(before[k], v) for k, v in model.module.state_dict().items())


def tensors_of(module):
    return [*module.state_dict().values(), *(v for v in vars(module).values() if isinstance(v, torch.Tensor))]


def strides(result):
    """Sizes of all tensors: torch compares strides of empty tensors and of size-1 dimensions too."""
    return {s if s != 1 else 0 for t in pytree.tree_leaves(result) if torch.is_tensor(t) for s in t.shape}


def test_masked_tokens_stay_in_range_and_results_keep_their_dtypes():
    model, captured = case("masked_token_pool")
    for variant in captured.variants:
        for seed in range(6):
            (tokens, lengths), _ = model.example(variant, seed)
            assert 0 <= int(tokens.min()) <= int(tokens.max()) < 30
            assert 1 <= int(lengths.min()) <= int(lengths.max()) <= tokens.shape[1]
    dtypes = [v.spec.dtype for v in captured.target.graph.output_values]
    assert dtypes == ["float32", "int64", "bool"]


def test_channels_last_input_has_variants_of_the_same_layout():
    _, captured = case("channels_last_decoder")
    assert len(captured.checks) == 2
    for variant in captured.variants:
        _, c, h, w = variant.leaves[0].spec.shape
        assert variant.leaves[0].spec.stride == (c * h * w, 1, c * w, c)


def test_tied_weights_are_one_input():
    model, captured = case("tied_embedding_head")
    targets = [i.target for i in captured.target.graph.params]
    assert targets.count("embed.weight") == 1
    assert "head.weight" not in targets
    with torch.no_grad():
        model.module.embed.weight.mul_(0.5)
    replay = Replay(model, captured, captured.target)
    args, _ = model.example("target")
    torch.testing.assert_close(replay(*args), model.module(*args))


def test_parametrized_weights_follow_the_module():
    model, captured = case("weight_norm_vocoder")
    targets = {i.target for i in captured.target.graph.params}
    assert "grow.parametrizations.weight.original0" in targets
    assert targets <= set(model.module.state_dict())


def test_non_persistent_buffer_is_an_input_named_by_its_path():
    model, captured = case("sdpa_masked_rows")
    assert "inv_freq" not in model.module.state_dict()
    found = constants_of(model, captured)
    assert found["b_inv_freq"] is model.module.inv_freq


def test_dropout_is_drawn_anew_on_every_call():
    model, captured = case("mc_dropout")
    replay = Replay(model, captured, captured.target)
    args, _ = model.example("target")
    assert not torch.equal(replay(*args), replay(*args))


def test_loop_shares_its_parameters():
    _, captured = case("gru_cell_loop")
    assert len(captured.target.graph.params) == 5


@pytest.mark.parametrize(
    ("name", "step"), [("einops_patches", 4), ("cross_branch_exchange", 2), ("weight_norm_vocoder", 1)]
)
def test_drawn_sizes_are_small_fit_the_model_and_have_a_batch_of_one(name, step):
    captured = captured_case(name)
    batches = [v.leaves[0].spec.shape[0] for v in captured.variants]
    assert batches[2] == 1
    assert len(set(batches)) == 3
    for variant in captured.checks:
        spatial = variant.leaves[0].spec.shape[2:]
        assert all(5 <= size <= 32 and size % step == 0 for size in spatial)
        assert len(set(spatial)) == len(spatial)
        assert spatial != captured.target.leaves[0].spec.shape[2:]
