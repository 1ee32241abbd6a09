"""A chip description: datasheet numbers and what was measured, read from `conf/chip/*.yaml`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """Rates are per second: bytes or FLOP. `matrix` and `vector` map a dtype (or `tf32`) to dense FLOP/s.

    `*_measured` rates were seen on the device by `source`; estimates use them, bounds use the datasheet's.
    """

    name: str
    backend: str  # "cuda" or "hip"
    arch: str  # "90" (compute capability) or "gfx942"
    warp_size: int
    processors: int  # streaming multiprocessors or compute units
    clock_hz: float
    dram_bytes: float
    dram_measured: float
    l2_size: int
    l2_bytes: float
    shared_per_program: int  # most bytes one program may ask for
    shared_per_processor: int
    registers_per_processor: int
    threads_per_processor: int
    programs_per_processor: int
    launch_us: float
    matrix: tuple[tuple[str, float], ...]
    vector: tuple[tuple[str, float], ...]
    source: str
    matrix_reached: float = 0.8  # share of `matrix` that a large library product reaches

    def matrix_rate(self, dtype: str) -> float:
        """FLOP/s of matrix products on `dtype` operands; the vector rate where no matrix unit takes it."""
        rates = dict(self.matrix)
        return rates[dtype] if dtype in rates else dict(self.vector)[dtype]
