"""mkevolve: evolves how a PyTorch module is cut into subgraphs together with the Triton kernel of each.

Importing this package loads no torch, triton, ray or litellm; `load` imports what it needs when called.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkevolve.compose import load

__all__ = ["load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "load":
        from mkevolve.compose import load

        return load
    raise AttributeError(f"module 'mkevolve' has no attribute {name!r}")
