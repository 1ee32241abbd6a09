"""What a child may see is installed software, named by nobody's mistake."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

CODE = "from mkevolve.backends.confinement import Mode, visible; print(*visible(Mode.INTERPRET), sep='\\n')"


def seen(folder: Path, libraries: str) -> set[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_python_and_the_package_are_visible_the_checkout_is_not(tmp_path):
    paths = seen(tmp_path, "")
    package = Path(__file__).parents[2] / "mkevolve"
    assert {sys.prefix, sys.base_prefix, str(package)} <= paths
    assert str(package.parent) not in paths


def test_a_search_path_of_libraries_shows_no_home(tmp_path):
    home = pwd.getpwuid(os.geteuid()).pw_dir
    paths = seen(tmp_path, f"{tmp_path}/lib:{home}:/:relative:")
    assert f"{tmp_path}/lib" in paths
    assert not {home, "/", "relative", ""} & paths
