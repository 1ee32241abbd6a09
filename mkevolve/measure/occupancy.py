"""How many program instances of a launch one processor holds at a time."""

from mkevolve.data.chip import Chip
from mkevolve.data.plan import Resources

_REGISTER_GRAIN = 256  # registers are given to a warp in units of so many
_SHARED_RESERVED = 1024  # bytes of shared memory that the system keeps for each program
_SIMDS = 4  # AMD: vector register files of a compute unit


def resident(resources: Resources, chip: Chip) -> int:
    """Programs resident on a processor at once, at least 1: registers, shared memory, threads and slots."""
    threads = resources.num_warps * chip.warp_size
    if chip.backend == "cuda":
        grain = _REGISTER_GRAIN
        registers = resources.num_warps * -(-resources.registers * chip.warp_size // grain) * grain
        by_registers = chip.registers_per_processor // max(registers, 1)
        shared = resources.shared + _SHARED_RESERVED
    else:
        lanes = chip.registers_per_processor // _SIMDS // chip.warp_size  # a lane's registers on one SIMD
        waves = _SIMDS * max(lanes // max(resources.registers, 1), 1)
        by_registers = waves // resources.num_warps
        shared = max(resources.shared, 1)
    limits = (
        chip.programs_per_processor,
        chip.threads_per_processor // threads,
        by_registers,
        chip.shared_per_processor // shared,
    )
    return max(min(limits) // max(resources.num_ctas, 1) or min(limits), 1)
