"""The template proposer as a move in a table of choices: order, lineage, limits, what it refuses."""

import dataclasses
import pickle

import pytest
import torch
from oracle import every_point, function, propose, request

from mkevolve.errors import ProposalError
from mkevolve.propose.none import NullProposer
from mkevolve.propose.shapes import Sizes
from mkevolve.propose.template import TemplateProposer


def softmax():
    return function("softmax", lambda x: x.softmax(-1), (torch.zeros(6, 40),), (torch.zeros(2, 7),))


def choices(candidate):
    return dict(candidate.choices)


def test_first_candidate_is_the_best_guess_without_lineage():
    first, *others = propose(softmax(), limit=100)
    assert (first.parents, first.move) == ((), "")
    assert all(c.move and choices(c) != choices(first) for c in others)


def test_children_differ_from_their_parent_in_the_one_choice_that_the_move_names():
    parent = propose(softmax(), limit=1)[0]
    children = TemplateProposer().propose(request(softmax(), limit=100, parents=(parent,)))
    assert children
    for child in children:
        assert child.parents == (parent.id,)
        changed = {k for k in choices(parent) if choices(parent)[k] != choices(child)[k]}
        name, _, step = child.move.partition(": ")
        assert changed == {name}
        assert step == f"{choices(parent)[name]} -> {choices(child)[name]}"


def test_moves_reach_every_point():
    found = {c.id: c for c in propose(softmax(), limit=1)}
    while new := [
        c
        for c in TemplateProposer().propose(request(softmax(), limit=100, parents=tuple(found.values())))
        if c.id not in found
    ]:
        found.update({c.id: c for c in new})
    assert set(found) == {c.id for c in every_point(softmax())}


def test_what_was_seen_is_not_offered_again_and_the_limit_holds():
    whole = propose(softmax(), limit=100)
    asked = dataclasses.replace(request(softmax(), limit=1), seen=frozenset({whole[0].id}))
    assert [c.id for c in TemplateProposer().propose(asked)] == [whole[1].id]
    exhausted = dataclasses.replace(asked, seen=frozenset(c.id for c in whole))
    assert TemplateProposer().propose(exhausted) == ()


def test_a_parent_of_another_proposer_gives_the_same_offer_as_none():
    stranger = dataclasses.replace(propose(softmax(), limit=1)[0], proposer="llm", source="# other")
    offered = TemplateProposer().propose(request(softmax(), parents=(stranger,)))
    assert [c.id for c in offered] == [c.id for c in propose(softmax())]


def test_equal_requests_give_equal_answers_also_after_pickling():
    copied = pickle.loads(pickle.dumps(TemplateProposer()))
    assert copied.propose(request(softmax())) == TemplateProposer().propose(request(softmax()))


def test_refusals_name_the_op():
    with pytest.raises(ProposalError, match=r"no template covers aten\.cumsum\.default"):
        propose(function("sum", lambda x: x.relu().cumsum(0), (torch.zeros(4),)))
    with pytest.raises(ProposalError, match="no proposer"):
        NullProposer().propose(request(softmax()))


def test_sizes_that_vary_are_read_from_tensors_and_others_may_be_numbers():
    def halves(x):
        return x.view(x.shape[0], 2, 20).exp()

    problem = function("halves", halves, (torch.zeros(6, 40),), (torch.zeros(3, 40),))
    source = propose(problem, limit=1)[0].source
    assert "torch.empty((x0.shape[0], 2, 20)" in source


def test_offsets_past_31_bits_are_computed_in_64():
    with torch._subclasses.FakeTensorMode():
        large = function("large", torch.exp, (torch.empty(2**16, 2**16),), (torch.empty(3, 5),))
        offers = propose(large)
    assert all("tl.program_id(0).to(tl.int64)" in c.source for c in offers)
    assert "int64" not in propose(softmax(), limit=1)[0].source


def test_a_size_that_no_input_explains_is_refused():
    sizes = Sizes(request(softmax()).subgraph)
    with pytest.raises(ProposalError, match="is no product of input sizes"):
        sizes.host((11, 13))
