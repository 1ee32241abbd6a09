import pytest
from partition_graphs import Sketch, random_graph

from mkevolve.data.decomposition import Decomposition
from mkevolve.data.graph import Graph
from mkevolve.errors import IllegalPartition
from mkevolve.partition.facts import survey
from mkevolve.partition.legality import check, order


def chain() -> Graph:
    s = Sketch()
    x = s.input((4, 6))
    y = s.op("relu", x)
    z = s.op("transpose.int", y, 0, 1)
    w = s.op("tanh", z)
    return s.graph(s.op("add.Tensor", w, z))


def two_branches() -> Graph:
    """high and low exchange: relu -> tanh -> add, and relu -> add."""
    s = Sketch()
    x = s.input((4, 6))
    a = s.op("relu", x)
    b = s.op("tanh", a)
    return s.graph(s.op("add.Tensor", a, b))


def cut(*partitions: str, **options: object) -> Decomposition:
    return Decomposition(tuple(tuple(p.split()) for p in partitions), **options)


def test_a_view_may_lie_in_a_partition_or_in_none():
    check(chain(), cut("relu", "tanh add"))
    check(chain(), cut("relu transpose tanh add"))
    check(chain(), cut("relu tanh add"))


@pytest.mark.parametrize(
    ("rule", "named", "decomposition"),
    [
        ("disjoint", "tanh", cut("relu tanh", "tanh add")),
        ("covering", "add", cut("relu", "tanh")),
        ("known", "silu", cut("relu", "tanh add silu")),
        ("known", "transpose", cut("relu", "transpose", "tanh add")),
        ("formats", "add", cut("relu", "tanh add", formats=(("add", "contiguous"),))),
        ("formats", "transpose", cut("relu", "tanh add", formats=(("transpose", "contiguous"),))),
        ("formats", "relu", cut("relu", "tanh add", formats=(("relu", "diagonal"),))),
    ],
)
def test_each_rule_names_itself_and_the_node(rule, named, decomposition):
    with pytest.raises(IllegalPartition, match=rf"^{rule}: .*{named}"):
        check(chain(), decomposition)


def test_a_partition_that_is_left_and_entered_again_is_refused_with_the_way():
    with pytest.raises(IllegalPartition, match=r"^convex: .*relu, tanh, add"):
        check(two_branches(), cut("relu add", "tanh"))


def test_a_path_through_glue_counts():
    s = Sketch()
    x = s.input((4, 6))
    a = s.op("relu", x)
    b = s.op("tanh", s.op("view", a, (24,)))
    graph = s.graph(s.op("add.Tensor", a, s.op("view", b, (4, 6))))
    with pytest.raises(IllegalPartition, match=r"^convex"):
        check(graph, cut("relu add", "tanh"))


def test_convex_partitions_that_wait_for_each_other_are_refused():
    s = Sketch()
    x, y = s.input((4,)), s.input((4,))
    s.op("tanh", s.op("relu", x))
    s.op("exp", s.op("neg", y))
    graph = s.graph("tanh", "exp")
    check(graph, cut("relu tanh", "neg exp"))
    check(graph, cut("relu exp", "neg", "tanh"))
    with pytest.raises(IllegalPartition, match=r"^acyclic"):
        check(graph, cut("relu exp", "neg tanh"))


def test_random_nodes_are_alone_and_keep_their_order():
    s = Sketch()
    x = s.input((4, 6))
    first = s.op("relu", x)
    a, _ = s.ops("native_dropout", first, 0.5, True)
    b, _ = s.ops("native_dropout", x, 0.5, True)
    graph = s.graph(s.op("add.Tensor", a, b))
    decomposition = cut("native_dropout_1", "relu", "native_dropout", "add")
    check(graph, decomposition)
    assert order(survey([graph]), decomposition) == (1, 2, 0, 3)
    with pytest.raises(IllegalPartition, match=r"^random"):
        check(graph, cut("relu native_dropout", "native_dropout_1", "add"))


def test_a_node_that_writes_is_refused():
    s = Sketch()
    x = s.input((4, 6))
    with pytest.raises(IllegalPartition, match=r"^functional: .*relu_"):
        check(s.graph(s.op("relu_", x)), cut("relu_"))


def test_the_work_grows_linearly(monkeypatch):
    import random

    from mkevolve.partition.facts import Facts

    looked_up = []
    plain = Facts.parents

    def counted(self, node):
        looked_up.append(node)
        return plain(self, node)

    monkeypatch.setattr(Facts, "parents", counted)
    counts = []
    for size in (60, 240):
        graph = random_graph(random.Random(1), size)
        facts = survey([graph])
        looked_up.clear()
        check(facts, Decomposition(tuple((n,) for n in facts.compute)))
        counts.append(len(looked_up) / len(facts.compute))
    assert counts[1] <= 1.5 * counts[0]
