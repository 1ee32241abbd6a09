"""Decompositions and what their searches found: the outer loop between the first cut and the composition."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mkevolve.data.candidate import Candidate
from mkevolve.data.decomposition import Decomposition, Slot, Subgraph
from mkevolve.data.measurement import Evaluation, Measurement
from mkevolve.data.search import Found, Refused
from mkevolve.evolve import best_of, children
from mkevolve.measure.roofline import bound, estimate_eager
from mkevolve.partition.extract import slots_of, with_checks_of
from mkevolve.partition.first_cut import first_cut
from mkevolve.propose.none import NullProposer
from mkevolve.schedule import Outcome, run_searches
from mkevolve.session import Session
from mkevolve.tune import SearchTask


@dataclass
class Exploration:
    """Searches subgraphs once, whichever decompositions they occur in, and predicts composed times.

    It begins with `start` (None: the first cut), and every cut that it tries has the `pinned` partitions.
    """

    session: Session
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    subgraphs: dict[str, Subgraph] = field(default_factory=dict)
    slots: dict[str, tuple[Slot, ...]] = field(default_factory=dict)
    start: Decomposition | None = None
    pinned: frozenset[frozenset[str]] = frozenset()

    def run(self) -> Decomposition:
        """Search the first cut, then rounds of its children; return the decomposition predicted fastest."""
        best = self.start or first_cut(self.session.captured)
        self._show(best)
        self._search((best,))
        if isinstance(self.session.proposer(), NullProposer):
            return best  # another cut needs other kernels
        for _ in range(self.session.settings.evolve_rounds):
            tried = self._children(best)
            self._search(tried, best, self.session.settings.evolve_share)
            best = best_of(self.session.captured, best, tried, self._predict_over(best))
        self._search((best,))  # a union of children has no new subgraph, but slots of its own
        return best

    def _show(self, decomposition: Decomposition) -> None:
        self._cut(decomposition)
        slots = self.slots[decomposition.id]
        distinct = len({slot.subgraph for slot in slots})
        self.session.progress.say(f"{len(slots)} slots, {distinct} distinct subgraphs")
        for slot in slots:
            self.session.progress.say(f"  {slot.name}  {slot.ops}  {slot.subgraph}")

    def predict(self, decomposition: Decomposition) -> float:
        """Microseconds of the composition on the model clock: winners, and fall-backs where there is none."""
        self._cut(decomposition)
        return sum(self.price(slot) for slot in self.slots[decomposition.id])

    def _predict_over(self, parent: Decomposition) -> Callable[[Decomposition], float]:
        """`predict`, but infinite where a node that a subkernel of `parent` runs would fall back.

        Estimates of eager and of a subkernel are no ground to give up what was verified.
        """
        own = self._own_nodes(parent)
        return lambda d: self.predict(d) if own <= self._own_nodes(d) else float("inf")

    def _own_nodes(self, decomposition: Decomposition) -> set[str]:
        self._cut(decomposition)
        slots = self.slots[decomposition.id]
        return {node for slot in slots if self.time(slot.subgraph) is not None for node in slot.nodes}

    def price(self, slot: Slot) -> float:
        """Microseconds of one slot as it would be filled."""
        time = self.time(slot.subgraph)
        return time.us if time is not None else self.fallback(slot.subgraph).us

    def time(self, subgraph: str) -> Measurement | None:
        """The winner's time; None where the slot stays on its fall-back."""
        outcome = self.outcomes.get(subgraph)
        return outcome.winner.evaluation.measurement if outcome and outcome.winner else None

    def fallback(self, subgraph: str) -> Measurement:
        """What eager is estimated to take for this subgraph."""
        return estimate_eager(
            self.subgraphs[subgraph].target, self.session.chip, self.session.settings.precision
        )

    def bound(self, subgraph: str) -> float:
        """The roofline's lower bound for this subgraph, in microseconds."""
        graph = self.subgraphs[subgraph].target
        return bound(graph, self.session.chip, self.session.settings.precision).us

    def _children(self, parent: Decomposition) -> tuple[Decomposition, ...]:
        failed = frozenset(s for s, o in self.outcomes.items() if o.winner is None)
        found = children(
            self.session.captured,
            parent,
            self.slots[parent.id],
            failed,
            self.price,
            self.session.chip,
        )
        free = [c for c in found if self.pinned <= set(map(frozenset, c.decomposition.partitions))]
        chosen = free[: self.session.settings.evolve_children]
        for child in chosen:
            self.session.progress.say(
                f"try: {child.decomposition.mutation} (may save {child.hope:.3g} µs, estimated)"
            )
        return tuple(child.decomposition for child in chosen)

    def _search(
        self,
        decompositions: tuple[Decomposition, ...],
        parent: Decomposition | None = None,
        share: float = 1.0,
    ) -> None:
        """Search what is new in some cuts; as children of `parent`, up to what they replace of it."""
        session = self.session
        tasks: dict[str, SearchTask] = {}
        for decomposition in decompositions:
            self._cut(decomposition)  # all of them first: each may add check sizes to a subgraph
        for decomposition in decompositions:
            session.check_references(decomposition)
            session.store.add_decomposition(
                decomposition, session.model.name, session.run, place=session.place
            )
            slots = self.slots[decomposition.id]
            new = [
                self.subgraphs[s]
                for s in dict.fromkeys(slot.subgraph for slot in slots)
                if s not in self.outcomes and s not in tasks
            ]
            worth = self._worth(decomposition, parent)
            for made in session.tasks(decomposition, slots, tuple(new), share):
                task = replace(made, worth=worth)
                session.store.add_subgraph(task.subgraph)
                session.progress.start(task.subgraph.id, task.subgraph.ops)
                tasks[task.subgraph.id] = task
        # the most expensive first: with a cut-off run, what matters most was searched
        order = sorted(tasks.values(), key=lambda t: -t.subgraph.weight * self.fallback(t.subgraph.id).us)
        self.outcomes.update(run_searches(order, session.executor(), self._commit, self._watch))
        for decomposition in decompositions:
            session.store.add_decomposition(
                decomposition, session.model.name, session.run, self.predict(decomposition), session.place
            )

    def _worth(self, child: Decomposition, parent: Decomposition | None) -> float:
        """Microseconds of the slots that the child replaces; no kernel slower than them would be used."""
        if parent is None:
            return float("inf")
        kept = set(child.partitions)
        return sum(self.price(slot) for slot in self.slots[parent.id] if slot.nodes not in kept)

    def _cut(self, decomposition: Decomposition) -> None:
        if decomposition.id not in self.slots:
            slots, subgraphs = slots_of(self.session.captured, decomposition)
            self.slots[decomposition.id] = slots
            for subgraph in subgraphs:
                known = self.subgraphs.get(subgraph.id, subgraph)
                if subgraph.id not in self.outcomes:  # what was accepted keeps the sizes that it holds for
                    known = with_checks_of(known, subgraph)
                self.subgraphs[subgraph.id] = known

    def _commit(self, candidate: Candidate, evaluation: Evaluation) -> None:
        self.session.store.add_evaluation(candidate, evaluation, self.session.run)

    def _watch(self, subgraph: str, record: Found | Refused) -> None:
        self.session.progress.record(subgraph, record)
