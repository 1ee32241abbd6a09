"""Errors that mean our code, the machine or the user's input is at fault; a bad kernel is a verdict instead.

MKEvolveError
├── UserError            a mistake of the caller: one line with the value and the cure, exit code 2
│   ├── ConfigError      unknown key, bad override, value out of range
│   ├── ModelError       the model file or module cannot be built or called
│   ├── CaptureError     the module cannot be captured faithfully
│   ├── CompositionError a composition file is malformed, unchecked or does not fit the module
│   └── StoreError       the database is corrupt, foreign or unwritable
├── ProposalError        a proposer has nothing for this subgraph; names the op
├── IllegalPartition     a cut breaks a rule of `partition/legality.py`; expected by the search of mutations
└── BackendError         a child, zygote or device failed in a way that says nothing about the candidate
"""


class MKEvolveError(Exception):
    """Root of all errors raised on purpose."""


class UserError(MKEvolveError):
    """A mistake of the caller; `__main__` prints it as one line and exits with 2."""


class ConfigError(UserError):
    """A configuration value or override is unknown or out of range."""


class ModelError(UserError):
    """The model file or module cannot be imported, built or called."""


class CaptureError(UserError):
    """The module cannot be captured without changing what it computes."""


class CompositionError(UserError):
    """A composition file is malformed, unchecked, or does not fit the module."""


class StoreError(UserError):
    """The database cannot be used."""


class ProposalError(MKEvolveError):
    """A proposer covers no candidate for this subgraph; the message names the op."""


class IllegalPartition(MKEvolveError):
    """A cut breaks a rule; the message names the rule and the nodes."""


class BackendError(MKEvolveError):
    """The machinery around a candidate failed; the candidate is not judged."""
