import pytest
import torch

from mkevolve.capture.calls import leaves_of
from mkevolve.compose.recapture import recapture
from mkevolve.data.composition import Signature
from mkevolve.models.mlp import MLP, SwiGLU
from mkevolve.models.resnet import BasicBlock
from mkevolve.models.transformer import GPTBlock
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut


def families(module: torch.nn.Module, *shape: int) -> tuple[list[str], list[str]]:
    leaves, tree = leaves_of(((torch.empty(shape, device="meta"),), {}))
    signature = Signature("float32", False, tree, (("target", leaves),))
    captured, _ = recapture("m", signature, module.eval())
    slots, subgraphs = slots_of(captured, first_cut(captured))
    by_id = {s.id: s.family for s in subgraphs}
    return [s.subgraph for s in slots], [by_id[s.subgraph] for s in slots]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((MLP(16, 32), 4, 16), (MLP(24, 96), 7, 24)),
        ((SwiGLU(16, 32), 2, 5, 16), (SwiGLU(8, 24), 3, 4, 8)),
        ((BasicBlock(3, 8), 2, 3, 8, 8), (BasicBlock(4, 16), 3, 4, 9, 7)),
        ((GPTBlock(16, 2), 2, 6, 16), (GPTBlock(24, 3), 3, 5, 24)),
    ],
)
def test_siblings_of_other_sizes_are_one_family(left, right):
    ids, kin = families(*left)
    others, their_kin = families(*right)
    assert kin == their_kin
    assert not set(ids) & set(others)


def test_another_stride_is_another_family():
    _, plain = families(BasicBlock(3, 8), 2, 3, 8, 8)
    _, strided = families(BasicBlock(3, 8, stride=2), 2, 3, 8, 8)
    assert plain[0] != strided[0]
    assert plain[1] == strided[1]  # the second convolution has stride 1 in both
