import json
from pathlib import Path

import pytest

from mkevolve.backends.device_seeds import Seeds
from mkevolve.data.candidate import Configuration
from mkevolve.data.graph import TensorSpec

SMALL, LARGE = Configuration((("BLOCK", 64),)), Configuration((("BLOCK", 128),))
SPEC = TensorSpec((4,), "float32", (1,))
ONE, TWO = ((SPEC,), ()), ((SPEC,), (SPEC,))


def cache(folder: Path, name: str = "ABC") -> Path:
    """What Triton writes: files of one binary and their list, and a stub without a list."""
    group, stub = folder / name, folder / "STUB"
    for made in (group, stub):
        made.mkdir(parents=True)
    (group / "k.cubin").write_bytes(b"\x7fELF")
    (group / "k.json").write_text("{}")
    paths = {n: str(group / n) for n in ("k.cubin", "k.json")}
    (group / "__grp__k.json").write_text(json.dumps({"child_paths": paths}))
    (stub / "launcher.so").write_bytes(b"so")
    return folder


def test_a_cache_moves_and_its_lists_follow(tmp_path):
    seeds = Seeds(tmp_path / "seeds")
    seeds.take(cache(tmp_path / "job1"), "source", SMALL)
    found = seeds.cache("source", SMALL)
    assert (found / "STUB" / "launcher.so").read_bytes() == b"so"
    listed = json.loads((found / "ABC" / "__grp__k.json").read_text())["child_paths"]
    assert {n: Path(p) for n, p in listed.items()} == {n: found / "ABC" / n for n in ("k.cubin", "k.json")}
    assert all(Path(p).exists() for p in listed.values())
    seeds.take(cache(tmp_path / "job2", "DEF"), "source", SMALL)
    assert sorted(p.name for p in found.iterdir()) == ["ABC", "DEF", "STUB"]


def test_links_and_broken_lists_stay_behind(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    written = cache(tmp_path / "job")
    (written / "ABC" / "link").symlink_to(secret)
    (written / "LINK").symlink_to(tmp_path)
    (written / "ABC" / "__grp__bad.json").write_text("{")
    (written / "ABC" / "__grp__list.json").write_text("[1]")
    (written / "ABC" / "__grp__deep.json").write_text("[" * 200_000)
    (written / "file").write_text("")
    seeds = Seeds(tmp_path / "seeds")
    seeds.take(written, "source", SMALL)
    found = seeds.cache("source", SMALL)
    assert sorted(p.name for p in found.iterdir()) == ["ABC", "STUB"]
    assert sorted(p.name for p in (found / "ABC").iterdir()) == ["__grp__k.json", "k.cubin", "k.json"]
    assert secret.exists()


def test_a_link_in_place_of_the_cache_is_not_followed(tmp_path):
    users = cache(tmp_path / "users")
    (tmp_path / "link").symlink_to(users)
    seeds = Seeds(tmp_path / "seeds")
    seeds.take(tmp_path / "link", "source", SMALL)
    assert not seeds.cache("source", SMALL).exists()
    assert (users / "ABC" / "k.cubin").exists()


def test_a_cache_that_is_no_cache_by_its_size_stays_behind(tmp_path):
    written = cache(tmp_path / "job")
    (written / "ABC" / "k.ptx").write_bytes(b"x" * (65 << 20))
    seeds = Seeds(tmp_path / "seeds")
    seeds.take(written, "source", SMALL)
    assert not seeds.cache("source", SMALL).exists()


def test_a_cache_that_no_child_made_is_nothing(tmp_path):
    seeds = Seeds(tmp_path / "seeds")
    seeds.take(tmp_path / "none", "source", SMALL)
    assert not seeds.cache("source", SMALL).exists()


def test_sources_and_configurations_are_kept_apart(tmp_path):
    seeds = Seeds(tmp_path)
    folders = {seeds.cache(s, c) for s in ("a", "b") for c in (SMALL, LARGE)}
    assert len(folders) == 4
    seeds.note("a", SMALL, {ONE})
    assert seeds.missing("a", SMALL, {ONE, TWO}) == {TWO}
    assert seeds.missing("a", LARGE, {ONE}) == {ONE}
    assert seeds.missing("b", SMALL, {ONE}) == {ONE}


@pytest.mark.parametrize("limit", [1, 3])
def test_the_least_recently_used_go(tmp_path, limit):
    seeds = Seeds(tmp_path / "seeds", limit=limit)
    for at in range(5):
        seeds.take(cache(tmp_path / f"job{at}"), str(at), SMALL)
        seeds.note(str(at), SMALL, {ONE})
        seeds.note("0", SMALL, {TWO})
    kept = [at for at in range(5) if seeds.cache(str(at), SMALL).exists()]
    assert len(kept) <= limit
    assert limit == 1 or kept == [0, 3, 4]
