"""The drop-in module: a composition file and a module become a module whose slots run chosen kernels."""

from mkevolve.compose.loading import load
from mkevolve.compose.module import ComposedModule
from mkevolve.compose.report import OriginalRan, Report, SlotCalls

__all__ = ["ComposedModule", "OriginalRan", "Report", "SlotCalls", "load"]
