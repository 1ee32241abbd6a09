"""The null proposer: every slot stays on its fall-back."""

from mkevolve.data.candidate import Candidate
from mkevolve.errors import ProposalError
from mkevolve.interfaces import ProposalRequest, Proposer


class NullProposer(Proposer):
    """Proposes nothing, for runs that only capture, partition and compose."""

    free = True

    def propose(self, request: ProposalRequest) -> tuple[Candidate, ...]:
        raise ProposalError("no proposer")
