"""Which dimensions of a product are rows, columns, batch and summed over."""

import pytest

from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.errors import ProposalError
from mkevolve.propose.ops.matmul_terms import contraction


def _spec(*shape):
    stride, step = [], 1
    for n in reversed(shape):
        stride.insert(0, step)
        step *= n
    return TensorSpec(tuple(shape), "float32", tuple(stride))


def _graph(op, shapes, out, args=None, kwargs=()):
    inputs = tuple(Input(Value(f"x{i}", _spec(*s)), InputKind.ACTIVATION) for i, s in enumerate(shapes))
    node = Node("n0", op, args or tuple(Ref(i.name) for i in inputs), kwargs, (Value("n0", _spec(*out)),))
    return node, Graph(inputs, (node,), (Ref("n0"),))


def test_linear_keeps_every_leading_dimension_as_rows():
    node, graph = _graph("aten.linear.default", [(2, 3, 8), (5, 8), (5,)], (2, 3, 5))
    found = contraction(node, graph)
    assert found.rows == ("m0", "m1")
    assert found.columns == ("n",)
    assert found.inner == ("k",)
    assert found.batch == ()
    assert (found.addend, found.addend_labels) == ("x2", ("n",))
    assert found.sizes(graph) == {"m0": 2, "m1": 3, "n": 5, "k": 8}


def test_matmul_with_a_shared_right_operand_has_no_batch():
    node, graph = _graph("aten.matmul.default", [(4, 3, 6, 8), (8, 5)], (4, 3, 6, 5))
    found = contraction(node, graph)
    assert found.batch == ()
    assert found.rows == ("b0", "b1", "m")


def test_matmul_broadcasts_a_batch_dimension_of_size_one():
    node, graph = _graph("aten.matmul.default", [(4, 1, 6, 8), (3, 8, 5)], (4, 3, 6, 5))
    found = contraction(node, graph)
    assert found.lhs_labels == ("b0", "", "m", "k")
    assert found.rows == ("b0", "m")
    assert found.columns == ("b1", "n")


def test_vectors_lose_their_dimension():
    node, graph = _graph("aten.matmul.default", [(4, 6, 8), (8,)], (4, 6))
    found = contraction(node, graph)
    assert (found.rows, found.columns, found.inner) == (("b0", "m"), (), ("k",))


def test_addmm_reads_its_factors_and_a_broadcast_addend():
    node, graph = _graph(
        "aten.addmm.default", [(1, 5), (3, 8), (8, 5)], (3, 5), kwargs=(("beta", 0.5), ("alpha", 2))
    )
    found = contraction(node, graph)
    assert (found.alpha, found.beta, found.addend_labels) == (2.0, 0.5, ("", "n"))


def test_einsum_of_two_tensors():
    args = ("bhqd,bhkd->bhqk", (Ref("x0"), Ref("x1")))
    node, graph = _graph("aten.einsum.default", [(2, 3, 4, 8), (2, 3, 5, 8)], (2, 3, 4, 5), args)
    found = contraction(node, graph)
    assert (found.batch, found.rows, found.columns, found.inner) == (("b", "h"), ("q",), ("k",), ("d",))


@pytest.mark.parametrize("equation", ["bii,bij->bij", "bij,bjk->bk", "bij,bjk", "ij,kl->ijkl"])
def test_einsum_that_is_no_matrix_product_is_refused_by_name(equation):
    shapes = [tuple(3 for _ in term) for term in equation.split("->")[0].split(",")]
    node, graph = _graph("aten.einsum.default", shapes, (3, 3), (equation, (Ref("x0"), Ref("x1"))))
    with pytest.raises(ProposalError, match=r"aten\.einsum\.default"):
        contraction(node, graph)


def test_sizes_refuse_a_variant_that_broadcasts_where_the_target_does_not():
    node, graph = _graph("aten.matmul.default", [(4, 6, 8), (4, 8, 5)], (4, 6, 5))
    found = contraction(node, graph)
    _, other = _graph("aten.matmul.default", [(4, 6, 8), (1, 8, 5)], (4, 6, 5))
    with pytest.raises(ProposalError, match="broadcasting"):
        found.sizes(other)
