"""What an evaluation was verified on, as a content id: evidence counts only for equal cases."""

import json
from collections.abc import Iterable

from mkevolve.data.codec import encode_graph
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.ids import content_id
from mkevolve.data.measurement import Evaluation
from mkevolve.data.verdict import Tier


def cases_id(subgraph: Subgraph, tier: Tier, seed: int) -> str:
    """The fingerprint of a tier's cases: the seed they are drawn from and, to accept, the check graphs.

    A subgraph's id covers its target alone. Screens are shared over check sizes: they only rank, and nothing
    is used without an acceptance, which holds for the sizes it was verified at and no others.
    """
    graphs = sorted(json.dumps(encode_graph(g)) for _, g in subgraph.checks) if tier is Tier.ACCEPT else []
    return content_id("cases", [tier.value, seed, graphs])


def comparable(evaluations: Iterable[Evaluation], subgraph: Subgraph, seed: int) -> tuple[Evaluation, ...]:
    """The evaluations that were made on the cases that this subgraph and seed would be verified on."""
    wanted = {tier: cases_id(subgraph, tier, seed) for tier in Tier}
    return tuple(e for e in evaluations if e.cases == wanted[e.tier])
