"""Proposes candidates from tables: a structural variant is a point, a move changes one of its choices."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mkevolve.data.candidate import Candidate, Setting
from mkevolve.data.decomposition import Subgraph
from mkevolve.errors import ProposalError
from mkevolve.interfaces import ProposalRequest, Proposer
from mkevolve.propose.emit import is_pointwise
from mkevolve.propose.families import FAMILIES
from mkevolve.propose.family import Family, Point

NAME = "template"


@dataclass(frozen=True, slots=True)
class Plan:
    """A family, what it matched, and its choices: the space in which one subgraph is searched."""

    family: Family[Any]
    match: object
    choices: Mapping[str, tuple[Setting, ...]]

    @property
    def default(self) -> dict[str, Setting]:
        """The best guess."""
        return {name: options[0] for name, options in self.choices.items()}

    def moves(self, point: Point) -> tuple[tuple[str, dict[str, Setting]], ...]:
        """Every change of one choice as (move, new point).

        The first untried option of every choice comes before the second of any: early moves are spread over
        the table.
        """
        found: list[tuple[int, str, dict[str, Setting]]] = []
        for name, options in self.choices.items():
            others = [o for o in options if o != point[name]]
            for rank, option in enumerate(others):
                found.append((rank, f"{name}: {point[name]} -> {option}", {**point, name: option}))
        return tuple((move, new) for _, move, new in sorted(found, key=lambda item: item[0]))


class TemplateProposer(Proposer):
    """Covers the op families of `families.FAMILIES`; never random in what it offers, only in later order.

    Without parents it offers the best guess and single changes to it; with parents, points that differ from
    a parent in one choice.
    """

    free = True

    def propose(self, request: ProposalRequest) -> tuple[Candidate, ...]:
        plans = plans_for(request)
        found: list[Candidate] = []
        taken = set(request.seen)
        for candidate in _offers(plans, request):
            if len(found) >= request.limit:
                break
            if candidate.id not in taken:
                taken.add(candidate.id)
                found.append(candidate)
        return tuple(found)


def plans_for(request: ProposalRequest) -> tuple[Plan, ...]:
    """The plan of every family that covers the subgraph at its best guess, in table order.

    Raises `ProposalError` with every family's reason where none does.
    """
    plans: list[Plan] = []
    reasons: list[str] = []
    for family in FAMILIES:
        try:
            match = family.match(request.subgraph)
            if match is None:
                continue
            plan = Plan(family, match, family.choices(match, request.chip, request.precision))
            if _first(plan) is None:
                raise ProposalError(f"{type(family).__name__} has no valid point")
        except ProposalError as error:
            reasons.append(str(error))
        else:
            plans.append(plan)
    if not plans:
        raise ProposalError("; ".join(dict.fromkeys(reasons)) or _uncovered(request.subgraph))
    return tuple(plans)


def _first(plan: Plan) -> str | None:
    """The source of the best guess, or of the first single change of it that is valid."""
    for point in (plan.default, *(p for _, p in plan.moves(plan.default))):
        source = plan.family.render(plan.match, point)
        if source is not None:
            return source
    return None


def _uncovered(subgraph: Subgraph) -> str:
    ops = [n.op for n in subgraph.target.nodes]
    hard = [n.op for n in subgraph.target.nodes if not is_pointwise(n)]
    return f"no template covers {' + '.join(dict.fromkeys(hard or ops))}"


def _offers(plans: tuple[Plan, ...], request: ProposalRequest) -> Iterator[Candidate]:
    """All candidates in order of promise; the families' best guesses come before any change to them."""
    parents = [p for p in request.parents if p.proposer == NAME]
    rows = [(plan, p) for p in parents for plan in plans if set(dict(p.choices)) == _names(plan)]
    if not rows:
        for plan in plans:
            yield from _candidate(plan, plan.default, (), "")
        for plan in plans:
            for move, point in plan.moves(plan.default):
                yield from _candidate(plan, point, (), move)
        return
    rng = random.Random(request.seed)
    batches = []
    for plan, parent in rows:
        point = {k: v for k, v in parent.choices if k != "family"}
        moves = list(plan.moves(point))
        head, tail = moves[: request.limit], moves[request.limit :]
        rng.shuffle(tail)
        batches.append([(plan, new, parent, move) for move, new in (*head, *tail)])
    for rank in range(max(map(len, batches))):
        for batch in batches:
            for plan, new, parent, move in batch[rank : rank + 1]:
                yield from _candidate(plan, new, (parent.id,), move)


def _names(plan: Plan) -> set[str]:
    return {*plan.choices, "family"}


def _candidate(plan: Plan, point: Point, parents: tuple[str, ...], move: str) -> Iterator[Candidate]:
    try:
        source = plan.family.render(plan.match, point)
    except ProposalError:
        return  # this point only: the plan's best guess was rendered
    if source is not None:
        choices = (("family", type(plan.family).__name__), *point.items())
        yield Candidate(source, NAME, parents, move, choices)
