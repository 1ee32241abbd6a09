import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from mkevolve.composition_file import (
    edited,
    entry_of,
    free_path,
    kernel_path,
    read,
    rewrite,
    text_sha256,
    unchecked,
    write,
)
from mkevolve.data.candidate import Configuration
from mkevolve.data.composition import Composition, KernelEntry, Signature, SlotChoice
from mkevolve.data.decomposition import Copy, Decomposition, Slot
from mkevolve.data.graph import TensorSpec
from mkevolve.data.ids import source_id
from mkevolve.data.measurement import Clock, Environment, Measurement
from mkevolve.data.model import Leaf
from mkevolve.errors import CompositionError

SOURCES = {
    source_id(text): text for text in ("def run(x):\n    return x\n", "# the second\n", "# a third: é\n")
}
FIRST, SECOND, THIRD = SOURCES
TIME = Measurement(Clock.MODEL, 12.25, 10.0, 15.5)
DETAILED = Measurement(Clock.MODEL, 12.2512345678901, 10.0, 1e6 / 3, (("dram", 8.5), ("launches", 3.0)))


def slot(name: str, subgraph: str) -> Slot:
    return Slot(
        name, subgraph, (f"{name}_node", "view"), ("x", "p_weight"), (f"{name}_out.0",), "conv2d+relu"
    )


def entry(kernel: str, place: Slot) -> KernelEntry:
    digest = hashlib.sha256(SOURCES[kernel].encode()).hexdigest()
    settings = (("BLOCK", 64), ("num_warps", 4), ("flag", True), ("mode", "on"), ("rate", 0.5))
    return KernelEntry(
        kernel,
        kernel_path(kernel, place.name),
        digest,
        place.subgraph,
        (("target", Configuration(settings)), ("check_1@b", Configuration())),
        "e_000000000001",
        DETAILED,
        0.5,
        1.0,
    )


def composition(first: str = FIRST, second: str = SECOND) -> Composition:
    a, b, c = slot("a", "sg_1"), slot("b", "sg_2"), slot("c", "sg_3")
    kernels = (entry(first, a), entry(second, b))
    return Composition(
        model="resnet_block",
        decomposition=Decomposition(
            tuple(s.nodes for s in (a, b, c)),
            (("relu", "channels_last"),),
            (Copy("relu", "relu_again", ("a_node",)),),
            "d_0",
            "fuse a: with 'b' #1",
        ),
        slots=(
            SlotChoice(a, kernels[0].path, fallback=TIME),
            SlotChoice(b, kernels[1].path, alternatives=(("k_x", TIME), ("eager", None))),
            SlotChoice(c, "eager", "no template for aten.cat.default: see: above"),
        ),
        kernels=kernels,
        environment=Environment(Clock.MODEL, "h200", "", "2.13.0+cpu", "3.7.1", "ieee", "1", "2"),
        signature=Signature(
            "float32",
            False,
            '[1, {"type": "builtins.tuple"}]',
            (
                ("target", (Leaf(TensorSpec((10, 3), "float32", (3, 1))), Leaf(None, "None"))),
                ("check_1", (Leaf(TensorSpec((), "int64", ())), Leaf(None, "'yes'"))),
            ),
        ),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "name with = [blanks] é" / "composition.yaml"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def test_what_was_written_is_read(path):
    made = composition()
    written = write(path, made, SOURCES)
    found = read(path)
    assert found == written.composition
    assert replace(found, written=(), written_files=()) == made
    assert found.decomposition.id == made.decomposition.id
    assert found.environment.id == made.environment.id
    assert (path.parent / made.kernels[0].path).read_text() == SOURCES[FIRST]
    assert set(written.files) == {path, *(path.parent / e.path for e in made.kernels)}


def test_a_slot_reads_as_name_and_implementation_first(path):
    write(path, composition(), SOURCES)
    text = path.read_text()
    assert f"- name: a\n  implementation: kernels/{FIRST}_a.py\n" in text
    assert "mkevolve check composition=" in text
    assert text.index("slots:") < text.index("kernels:") < text.index("written:")


def test_writing_twice_gives_the_same_bytes_and_no_other_files(path):
    write(path, composition(), SOURCES)
    before = path.read_bytes()
    files = sorted(path.parent.rglob("*"))
    assert write(path, composition(), SOURCES).kept == ()
    assert path.read_bytes() == before
    assert sorted(path.parent.rglob("*")) == files


def test_a_new_winner_replaces_the_old_one_and_its_file(path):
    write(path, composition(), SOURCES)
    write(path, composition(first=THIRD), SOURCES)
    assert read(path).slots[0].implementation == f"kernels/{THIRD}_a.py"
    assert not (path.parent / f"kernels/{FIRST}_a.py").exists()


def test_a_hand_edited_line_is_kept(path):
    write(path, composition(), SOURCES)
    change(path, f"implementation: kernels/{FIRST}_a.py", "implementation: mine.py")
    assert edited(path, read(path)) == ("a",)
    written = write(path, composition(first=THIRD), SOURCES)
    assert written.kept == ("a",)
    assert read(path).slots[0].implementation == "mine.py"
    assert edited(path, read(path)) == ("a",)  # and by the next search too
    assert write(path, composition(), SOURCES, keep=False).kept == ()
    assert read(path).slots[0].implementation == f"kernels/{FIRST}_a.py"


def test_a_hand_edited_kernel_file_is_kept(path):
    write(path, composition(), SOURCES)
    file = path.parent / f"kernels/{FIRST}_a.py"
    file.write_text("# better\n")
    assert edited(path, read(path)) == ("a",)
    assert write(path, composition(), SOURCES).kept == ("a",)
    assert file.read_text() == "# better\n"
    assert write(path, composition(first=THIRD), SOURCES).kept == ("a",)
    assert file.read_text() == "# better\n"
    assert "was changed" in unchecked(path, read(path))
    write(path, composition(), SOURCES, keep=False)
    assert file.read_text() == SOURCES[FIRST]


def checked(path: Path, text: str) -> None:
    """Edit the first slot's kernel file and let `check` accept it: same path, new id, hash and evidence."""
    found = read(path)
    (path.parent / found.kernels[0].path).write_text(text)
    entry = replace(found.kernels[0], id=source_id(text), sha256=text_sha256(text), evidence="e_000000000002")
    rewrite(path, replace(found, kernels=(entry, *found.kernels[1:])))
    assert unchecked(path, read(path)) is None


@pytest.mark.parametrize("winner", [FIRST, THIRD])
def test_an_edited_kernel_file_that_was_checked_is_kept_by_every_later_search(path, winner):
    write(path, composition(), SOURCES)
    file = path.parent / f"kernels/{FIRST}_a.py"
    checked(path, "# mine, and right\n")
    assert edited(path, read(path)) == ("a",)
    for _ in range(2):
        assert write(path, composition(first=winner), SOURCES).kept == ("a",)
        assert file.read_text() == "# mine, and right\n"
        assert read(path).slots[0].implementation == f"kernels/{FIRST}_a.py"
        assert unchecked(path, read(path)) is None
    assert write(path, composition(first=winner), SOURCES, keep=False).kept == ()
    assert (path.parent / f"kernels/{winner}_a.py").read_text() == SOURCES[winner]


def test_a_persons_own_checked_file_is_never_removed(path):
    write(path, composition(), SOURCES)
    found = read(path)
    (path.parent / "mine.py").write_text("# mine\n")
    own = replace(found.kernels[0], id="k_1", path="mine.py", sha256=text_sha256("# mine\n"))
    slots = (replace(found.slots[0], implementation="mine.py"), *found.slots[1:])
    rewrite(path, replace(found, slots=slots, kernels=(own, *found.kernels[1:])))
    write(path, composition(), SOURCES, keep=False)
    assert (path.parent / "mine.py").read_text() == "# mine\n"


def test_a_kept_kernel_that_makes_the_whole_wrong_loses_its_evidence_and_says_why(path):
    write(path, composition(), SOURCES)
    checked(path, "# mine\n")
    written = write(path, composition(), SOURCES, refused={"a": "the whole deviates"})
    assert written.kept == ("a",)
    assert read(path).slots[0].reason == "the whole deviates"
    assert "no evidence" in unchecked(path, read(path))


def test_a_free_path_never_names_other_content(tmp_path):
    assert free_path(tmp_path, "k.py", "a") == "k.py"
    (tmp_path / "k.py").write_text("a")
    (tmp_path / "k_2.py").write_text("b")
    assert [free_path(tmp_path, "k.py", text) for text in "abc"] == ["k.py", "k_2.py", "k_3.py"]


def test_a_swap_counts_as_a_persons_choice(path):
    found = write(path, composition(), SOURCES).composition
    other = entry(THIRD, found.slots[0].slot)
    slots = (replace(found.slots[0], implementation=other.path), *found.slots[1:])
    rewrite(path, replace(found, slots=slots, kernels=(*found.kernels, other)), SOURCES)
    assert unchecked(path, read(path)) is None
    written = write(path, composition(), SOURCES)
    assert written.kept == ("a",)
    assert entry_of(written.composition, written.composition.slots[0]).id == THIRD
    assert unchecked(path, written.composition) is None


def test_a_changed_slot_that_the_new_cut_lacks_is_not_dropped_in_silence(path):
    write(path, composition(), SOURCES)
    change(path, f"implementation: kernels/{FIRST}_a.py", "implementation: eager")
    other = composition()
    renamed = replace(other.slots[0], slot=replace(other.slots[0].slot, nodes=("new",)))
    with pytest.raises(CompositionError, match=r"slot a was changed by hand.*keep=false"):
        write(path, replace(other, slots=(renamed, *other.slots[1:])), SOURCES)
    write(path, replace(other, slots=(renamed, *other.slots[1:])), SOURCES, keep=False)


@pytest.mark.parametrize("line", ["kernels/../kernels/{0}_a.py", "./kernels/{0}_a.py", "{0}"])
def test_a_kernel_is_named_by_path_or_id(path, line):
    write(path, composition(), SOURCES)
    change(path, f"implementation: kernels/{FIRST}_a.py", "implementation: " + line.format(FIRST))
    assert unchecked(path, read(path)) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("mine.py", "was not checked"),
        (f"kernels/{SECOND}_b.py", "was not checked for sg_1"),
        ("k_000000000000", "was not checked"),
    ],
)
def test_an_unchecked_edit_is_found(path, line, why):
    write(path, composition(), SOURCES)
    assert unchecked(path, read(path)) is None
    change(path, f"implementation: kernels/{FIRST}_a.py", f"implementation: {line}")
    assert why in unchecked(path, read(path))


def test_fallbacks_need_no_check(path):
    write(path, composition(), SOURCES)
    change(path, f"implementation: kernels/{FIRST}_a.py", "implementation: compile")
    assert unchecked(path, read(path)) is None


def test_a_missing_kernel_file_is_found(path):
    write(path, composition(), SOURCES)
    (path.parent / f"kernels/{FIRST}_a.py").unlink()
    assert "no such file" in unchecked(path, read(path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mkevolve: 1", "mkevolve: 99", r":\d+ \(mkevolve\): format 99"),
        ("mkevolve: 1", "name: 1", "not a composition|no composition"),
        ("clock: model", "clock: sundial", r"\(clock\): 'sundial' is neither"),
        ("mode: eval", "mode: maybe", r"\(mode\): 'maybe'"),
        (
            "  implementation: eager",
            "  other: eager",
            r"\(slots\[2\]\): the field 'implementation' is missing",
        ),
        ("  implementation: eager", "  implementation:", r"\(slots\[2\]\.implementation\): empty"),
        ("- name: b", "- name: a", r"\(slots\[0\]\): two slots are named 'a'"),
        ("[10, 3]", "[10, x]", r"\(variants\.target\[0\]\.shape\[1\]\): 'x' is not an integer"),
        ("us: 12.25,", "us: soon,", r"'soon' is not a number"),
        ("slots:", "slots: 3\nnothing:", r"\(slots\): a list is expected"),
        ("- name: a", "- name: [a", "not YAML"),
        ("  target:", "  first:", "must be 'target'"),
    ],
)
def test_a_mistake_is_told_by_file_line_and_field(path, old, new, message):
    write(path, composition(), SOURCES)
    change(path, old, new)
    with pytest.raises(CompositionError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_the_line_is_right(path):
    write(path, composition(), SOURCES)
    change(path, "clock: model", "clock: sundial")
    number = path.read_text().splitlines().index("clock: sundial") + 1
    with pytest.raises(CompositionError, match=f":{number} "):
        read(path)


@pytest.mark.parametrize("content", ["", "- 1\n", "\x00", "just words"])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "composition.yaml"
    path.write_text(content)
    with pytest.raises(CompositionError, match=r"composition"):
        read(path)


def test_no_file_a_folder_and_bytes_are_refused(tmp_path):
    with pytest.raises(CompositionError, match="give the path"):
        read(tmp_path / "none.yaml")
    with pytest.raises(CompositionError, match="give the path"):
        read(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CompositionError, match="UTF-8"):
        read(tmp_path / "b.yaml")


def test_another_models_file_is_not_overwritten(path):
    write(path, composition(), SOURCES)
    with pytest.raises(CompositionError, match="belongs to the model resnet_block"):
        write(path, replace(composition(), model="mlp"), SOURCES)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CompositionError, match="cannot be written"):
        write(tmp_path / "file" / "composition.yaml", composition(), SOURCES)
