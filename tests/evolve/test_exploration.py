"""What several cuts share: one search a subgraph, at the check sizes of all of them."""

from dataclasses import replace
from types import SimpleNamespace

from mkevolve.data.decomposition import Decomposition
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.model import CapturedModel, Leaf, Variant
from mkevolve.exploration import Exploration
from mkevolve.partition.extract import slots_of
from mkevolve.schedule import Outcome


def spec(rows: int) -> TensorSpec:
    return TensorSpec((rows, 4), "float32", (4, 1))


def two_relus() -> CapturedModel:
    """Two relus of equal target size and other check sizes; a tanh after the second."""
    variants = []
    for name, first, second in (("target", 6, 6), ("check_1", 3, 2)):
        steps = [("relu", "a", first), ("relu_1", "b", second), ("tanh", "relu_1", second)]
        graph = Graph(
            tuple(Input(Value(n, spec(r)), InputKind.ACTIVATION) for n, r in (("a", first), ("b", second))),
            tuple(
                Node(node, f"aten.{node.split('_')[0]}.default", (Ref(read),), (), (Value(node, spec(rows)),))
                for node, read, rows in steps
            ),
            (Ref("relu"), Ref("tanh")),
        )
        variants.append(Variant(name, graph, (Leaf(spec(first)), Leaf(spec(second)))))
    return CapturedModel("m", "float32", False, tuple(variants), "", "")


FUSED = Decomposition((("relu",), ("relu_1", "tanh")))
SPLIT = Decomposition((("relu",), ("relu_1",), ("tanh",)))


def test_a_later_cut_adds_its_check_sizes_until_the_subgraph_was_searched():
    captured = two_relus()
    relu = slots_of(captured, FUSED)[0][0].subgraph
    exploration = Exploration(SimpleNamespace(captured=captured))
    exploration._cut(FUSED)
    assert [g.inputs[0].spec.shape[0] for _, g in exploration.subgraphs[relu].variants] == [6, 3]
    exploration._cut(SPLIT)
    merged = exploration.subgraphs[relu]
    assert [g.inputs[0].spec.shape[0] for _, g in merged.variants] == [6, 3, 2]
    assert len({name for name, _ in merged.variants}) == 3
    assert merged.weight == 2
    searched = Exploration(SimpleNamespace(captured=captured))
    searched._cut(FUSED)
    searched.outcomes[relu] = Outcome(relu)
    searched._cut(SPLIT)
    assert [g.inputs[0].spec.shape[0] for _, g in searched.subgraphs[relu].variants] == [6, 3]


def test_the_cuts_of_one_round_are_merged_before_their_searches_are_made(monkeypatch):
    captured = two_relus()
    relu = slots_of(captured, FUSED)[0][0].subgraph
    sizes = {}

    def tasks(_decomposition, _slots, subgraphs, _share):
        sizes.update({s.id: len(s.variants) for s in subgraphs})
        return ()

    store = SimpleNamespace(add_decomposition=lambda *_, **__: None)
    session = SimpleNamespace(
        captured=captured, store=store, model=SimpleNamespace(name="m"), run="r", place="m_1",
        check_references=lambda _: None, tasks=tasks, executor=lambda: None,
    )  # fmt: skip
    exploration = Exploration(session)
    monkeypatch.setattr(Exploration, "predict", lambda *_: 1.0)
    exploration._search((FUSED, replace(SPLIT, parent=FUSED.id)))
    assert sizes[relu] == 3
