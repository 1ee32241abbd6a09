"""The gates of verification by name, so that tests can show that each is needed."""

from enum import StrEnum


class Gate(StrEnum):
    """One thing that verification checks. All are on, except where a test takes one away."""

    STATIC = "static"  # the rules of the source
    DISPATCH = "dispatch"  # torch calls of `run` seen when it is called: allocations and views only
    HOST = "host"  # what `run` does between its launches touches no tensor's memory
    COMPILE = "compile"  # compiler errors and the chip's limits
    PRECISION = "precision"  # dots and accumulators against the policy
    OUTPUT = "output"  # number, type, shape, dtype, strides and sharing of the results
    VALUE = "value"  # the results against the reference
    INPUT = "input"  # inputs not written
    BOUNDS = "bounds"  # loads and stores within their tensors
    STATE = "state"  # global torch state unchanged
    REPEAT = "repeat"  # the same call gives the same bits
    ORDER = "order"  # program instances in any order give the same bits
    POISON = "poison"  # the result does not depend on what an allocation held
    NOOP = "noop"  # without launches the result is wrong
    SANDBOX = "sandbox"  # what the operating system denies a child
