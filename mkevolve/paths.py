"""Where things lie: the packaged configuration, and the folders under `root=`."""

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def conf_dir() -> Path:
    """The `conf/` folder: inside the package when installed from a wheel, beside it in a checkout."""
    packaged = PACKAGE / "conf"
    return packaged if packaged.is_dir() else PACKAGE.parent / "conf"


@dataclass(frozen=True, slots=True)
class Root:
    """The folders that a run reads and writes, under one `root`."""

    root: Path

    @property
    def decompositions(self) -> Path:
        return self.root / "decompositions"

    @property
    def searches(self) -> Path:
        return self.root / "searches"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def database(self) -> Path:
        return self.searches / "mkevolve.db"


def path_of(text: str) -> Path:
    """An absolute path from a word of the command line."""
    path = Path(text)
    # `~` is the home folder only as the shell would read it: alone or before a slash
    expanded = path.expanduser() if text == "~" or text.startswith("~/") else path
    return Path.cwd() / expanded
