"""`check` takes an acceptance from the ledger only if it holds for the sizes and the seed of now."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.cases import cases_id
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.measurement import Environment, Evaluation
from mkevolve.data.search import Trial
from mkevolve.data.verdict import Status, Step, Tier, Verdict
from mkevolve.recheck import _evaluate
from mkevolve.store.store import Store

SPEC = TensorSpec((4,), "float32", (1,))
GRAPH = Graph(
    (Input(Value("x0", SPEC), InputKind.ACTIVATION),),
    (Node("n0", "aten.relu.default", (Ref("x0"),), (), (Value("n0", SPEC),)),),
    (Ref("n0"),),
)
PLAIN = Subgraph("sg_1", "fam_1", (("target", GRAPH),), "relu")
CHECKED = replace(PLAIN, variants=(("target", GRAPH), ("check_1", GRAPH)))
TRIAL = Trial(Candidate("x = 1\n", "person"), Configuration(()), Tier.ACCEPT)


def test_an_acceptance_without_checks_does_not_count_for_a_subgraph_with_checks(
    tmp_path: Path, environment: Environment
) -> None:
    made = []
    with Store(tmp_path / "x.db") as store:

        def check(subgraph: Subgraph, seed: int) -> Evaluation:
            def evaluate(trial: Trial) -> Evaluation:
                made.append((len(subgraph.checks), seed))
                return Evaluation(
                    subgraph.id, trial.candidate.id, trial.configuration, environment.id, trial.tier,
                    Verdict(Status.PASSED, Step.NUMERIC, trial.tier), None, 1.0,
                    cases_id(subgraph, trial.tier, seed),
                )  # fmt: skip

            task = SimpleNamespace(evaluator=lambda: nullcontext(evaluate))
            session = SimpleNamespace(
                store=store, environment=environment, run="r_1", settings=SimpleNamespace(seed=seed),
                tasks=lambda *_: (task,),
            )  # fmt: skip
            return _evaluate(session, SimpleNamespace(slots=(), decomposition=None), subgraph, TRIAL)

        found = [check(PLAIN, 0), check(PLAIN, 0), check(CHECKED, 0), check(CHECKED, 0), check(CHECKED, 1)]
        assert made == [(0, 0), (1, 0), (1, 1)]
        assert found[2] == found[3]
        assert len({f.id for f in found}) == store.counts()["evaluation"] == 3
