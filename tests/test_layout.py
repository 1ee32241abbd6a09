"""House rules that no linter checks: module size, and what `import mkevolve` loads."""

import subprocess
import sys
from pathlib import Path

import pytest

import mkevolve

PACKAGE = Path(mkevolve.__file__).parent
HEAVY = ("torch", "triton", "ray", "litellm", "hydra", "optuna", "numpy")


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import mkevolve, mkevolve.__main__, mkevolve.errors, mkevolve.interfaces") == set()


def test_that_test_can_fail() -> None:
    assert "numpy" in loaded_by("import mkevolve, numpy")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300


def test_public_names_are_sorted_and_load_on_use() -> None:
    assert mkevolve.__all__ == sorted(mkevolve.__all__)
    for name in mkevolve.__all__:
        assert callable(getattr(mkevolve, name))
