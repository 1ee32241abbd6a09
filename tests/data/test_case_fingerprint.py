"""Evidence counts for the cases it was made on: check sizes to accept, and the seed always."""

from dataclasses import replace

from mkevolve.data.candidate import Configuration
from mkevolve.data.cases import cases_id, comparable
from mkevolve.data.codec import decode, encode
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.measurement import Evaluation
from mkevolve.data.verdict import Status, Step, Tier, Verdict


def relu(rows: int) -> Graph:
    spec = TensorSpec((rows, 4), "float32", (4, 1))
    return Graph(
        (Input(Value("x0", spec), InputKind.ACTIVATION),),
        (Node("n0", "aten.relu.default", (Ref("x0"),), (), (Value("n0", spec),)),),
        (Ref("n0"),),
    )


def subgraph(*checks: int) -> Subgraph:
    named = tuple((f"check_{n}", relu(rows)) for n, rows in enumerate(checks))
    return Subgraph("sg_1", "fam_1", (("target", relu(64)), *named), "relu")


def evaluation(tier: Tier, cases: str) -> Evaluation:
    return Evaluation(
        "sg_1", "k_1", Configuration(()), "env_1", tier, Verdict(Status.PASSED, Step.NUMERIC, tier), None,
        1.0, cases,
    )  # fmt: skip


def test_an_acceptance_holds_for_its_check_sizes_and_seed() -> None:
    found = evaluation(Tier.ACCEPT, cases_id(subgraph(3, 5), Tier.ACCEPT, 0))
    assert comparable((found,), subgraph(5, 3), 0) == (found,)  # in any order, under any name
    for other in (subgraph(), subgraph(3), subgraph(3, 6), subgraph(3, 5, 7)):
        assert comparable((found,), other, 0) == ()
    assert comparable((found,), subgraph(3, 5), 1) == ()


def test_a_screen_is_shared_over_check_sizes_but_not_over_seeds() -> None:
    found = evaluation(Tier.SCREEN, cases_id(subgraph(3), Tier.SCREEN, 0))
    assert comparable((found,), subgraph(), 0) == (found,)
    assert comparable((found,), subgraph(3), 1) == ()


def test_equal_trials_on_other_cases_are_other_rows() -> None:
    one, other = (evaluation(Tier.ACCEPT, cases_id(subgraph(n), Tier.ACCEPT, 0)) for n in (3, 5))
    assert one.id != other.id


def test_a_row_of_an_older_version_is_read_keeps_its_id_and_counts_for_nothing() -> None:
    old = evaluation(Tier.ACCEPT, "")
    row = encode(old)
    assert isinstance(row, dict)
    del row["cases"]
    assert decode(Evaluation, row) == old
    assert old.id == "e_9032b2d0eac3"
    assert replace(old, cases="x").id != old.id
    assert comparable((old,), subgraph(), 0) == ()
