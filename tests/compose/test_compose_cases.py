import ast
import copy
import importlib.util
from pathlib import Path

import pytest
import torch
from composing import assert_same, clone, compose
from torch import nn

import mkevolve

CASES = Path(__file__).parents[1] / "cases" / "models"


def case(name: str) -> tuple[nn.Module, list[object], object]:
    path = CASES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    return module.Model(*module.get_init_inputs()).eval(), module.get_inputs(), module


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Write the composition of a case, once."""
    known: dict[str, Path] = {}

    def written(name: str) -> Path:
        if name not in known:
            original, inputs, _ = case(name)
            known[name] = compose(tmp_path_factory.mktemp(name), original, tuple(inputs))
        return known[name]

    return written


def matches() -> list[str]:
    names = []
    for path in sorted(CASES.glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        if text.partition("Expected:")[2].split()[0] == "match":
            names.append(path.stem)
    return names


@pytest.mark.parametrize("name", matches())
def test_a_composition_of_fallbacks_does_what_the_case_says(name, file):
    original, inputs, _ = case(name)
    path = file(name)
    twin = copy.deepcopy(original)
    composed = mkevolve.load(path, original)
    assert list(composed.state_dict()) == list(twin.state_dict())
    for seed in (1, 2):
        results, states = [], []
        for module in (composed, twin):
            given = clone(inputs)
            torch.manual_seed(seed)
            with torch.no_grad():
                results.append(module(*given))
            states.append((dict(module.state_dict()), given))
        assert_same(results[0], results[1])
        assert_same(states[0], states[1])
    report = composed.report()
    assert (report.composed, report.original) == (2, {})
    assert all(calls.fallback == 2 for calls in report.slots.values())


def test_the_untouched_input_comes_back_itself(file):
    original, inputs, _ = case("nested_none_outputs")
    composed = mkevolve.load(file("nested_none_outputs"), original)
    with torch.no_grad():
        assert composed(*inputs)["stages"][1][1] is inputs[0]


def test_arguments_that_were_not_captured_run_the_original(file):
    original, inputs, _ = case("keyword_arguments")
    composed = mkevolve.load(file("keyword_arguments"), original)
    bias = torch.randn(18)
    with torch.no_grad():
        with pytest.warns(mkevolve.compose.OriginalRan, match="scale"):
            assert_same(composed(*inputs, scale=3.0), original(*inputs, scale=3.0))
        assert_same(composed(*inputs, bias), original(*inputs, bias))
        assert_same(composed(x=inputs[0]), original(*inputs))
    assert composed.report().composed == 1
    assert composed.report().original == {"other arguments than were captured": 2}


def test_channels_last_and_contiguous_inputs_are_other_calls(file):
    original, inputs, _ = case("channels_last_decoder")
    composed = mkevolve.load(file("channels_last_decoder"), original)
    plain = inputs[0].contiguous()
    with torch.no_grad(), pytest.warns(mkevolve.compose.OriginalRan, match="strides"):
        assert_same(composed(plain), original(plain))


def test_tied_weights_stay_tied_and_both_uses_follow(file):
    original, inputs, _ = case("tied_embedding_head")
    composed = mkevolve.load(file("tied_embedding_head"), original)
    assert composed.embed.weight is composed.head.weight
    other, _, _ = case("tied_embedding_head")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
        composed.load_state_dict(other.state_dict())
        assert_same(composed(*inputs), other(*inputs))
    assert composed.report().composed == 1


def test_recomputed_weights_follow_loaded_values(file):
    original, inputs, _ = case("weight_norm_vocoder")
    composed = mkevolve.load(file("weight_norm_vocoder"), original)
    other, _, _ = case("weight_norm_vocoder")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
        composed.load_state_dict(other.state_dict())
        assert_same(composed(*inputs), other(*inputs))
    assert composed.report().composed == 1


def test_two_calls_of_dropout_differ(file):
    original, inputs, _ = case("mc_dropout")
    composed = mkevolve.load(file("mc_dropout"), original)
    with torch.no_grad():
        assert not torch.equal(composed(*inputs), composed(*inputs))
    assert composed.report().composed == 2


def test_a_buffer_outside_the_state_dict_moves(file):
    original, _, _ = case("sdpa_masked_rows")
    composed = mkevolve.load(file("sdpa_masked_rows"), original)
    composed.to(torch.float64)
    assert composed.inv_freq.dtype == torch.float64
    assert "inv_freq" not in composed.state_dict()
