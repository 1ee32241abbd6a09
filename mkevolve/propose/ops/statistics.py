"""What a row reduction needs to know of its rows, in registers or over a loop of column blocks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mkevolve.propose.emit import Coords, Emitter, Term

ROW = "[:, None]"


@dataclass(frozen=True, slots=True)
class Rows:
    """A tile of `ROWS` rows by `BLOCK` columns of the domain, in the kernel of `emitter`.

    `columns` is the text of a row's length. With `whole` a row lies in registers; otherwise every statistic
    is a loop over column blocks, in one or in two passes.
    """

    emitter: Emitter
    coords: Coords
    held: Coords  # of the domain, zero along the row
    reduced: tuple[int, ...]
    columns: str
    whole: bool
    one_pass: bool

    def line(self, text: str) -> None:
        self.emitter.kernel.line(text)

    def name(self, hint: str, text: str) -> str:
        return self.emitter.kernel.assign(hint, text)

    @contextmanager
    def sweep(self) -> Iterator[None]:
        """Lines added meanwhile run for every block of columns, `c`."""
        if self.whole:
            yield
            return
        kernel = self.emitter.kernel
        with self.emitter.loop(f"for start in range(0, {self.columns}, BLOCK):"):
            kernel.line(f"c = (start + {kernel.arange('BLOCK')})[None, :]")
            yield

    def operand(self, value: str, dtype: str) -> str:
        """`value` over the tile, as a name."""
        term: Term = self.emitter.pull(value, self.coords)
        text = term.cast(dtype)
        return text if text.isidentifier() else self.name(f"{value}_w", text)

    def masked(self, text: str, other: str) -> str:
        """`text` with `other` in the lanes past the end of a row."""
        return f"tl.where(c < {self.columns}, {text}, {other})"

    def row_coords(self, value: str) -> Coords:
        """Coordinates of a result that has one element a row, with the reduced dimensions kept or not."""
        if len(self.emitter.sizes.shape(value)) == len(self.held):
            return self.held
        return tuple(c for d, c in enumerate(self.held) if d not in self.reduced)

    @property
    def column_mask(self) -> str:
        """The mask term that every coordinate along a row carries."""
        return column_mask(self.columns)


def column_mask(columns: str) -> str:
    """What keeps a column in range."""
    return f"(c < {columns})"


Form = Callable[[str], str]


def total(rows: Rows, value: str, dtype: str = "float32", form: Form = str) -> str:
    """Sum of `form(value)` along rows; a column of the tile, like every statistic."""
    if rows.whole:
        x = rows.masked(form(rows.operand(value, dtype)), "0")
        return rows.name("total", f"tl.sum({x}, 1){ROW}")
    partial = rows.name("partial", f"tl.zeros([ROWS, BLOCK], tl.{dtype})")
    with rows.sweep():
        x = form(rows.operand(value, dtype))
        rows.line(f"{partial} += {rows.masked(x, '0')}")
    return rows.name("total", f"tl.sum({partial}, 1){ROW}")


def extreme(rows: Rows, value: str, sign: str, dtype: str = "float32", form: Form = str) -> str:
    """Largest (`sign="max"`) or smallest along rows; NaN where there is one."""
    limit = _limit(dtype, sign)
    pick = f"tl.{sign}imum"
    nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.startswith("float") else ""
    if rows.whole:
        best = rows.name("best", rows.masked(form(rows.operand(value, dtype)), limit))
    else:
        best = rows.name("best", f"tl.full([ROWS, BLOCK], {limit}, tl.{dtype})")
        with rows.sweep():
            x = rows.masked(form(rows.operand(value, dtype)), limit)
            rows.line(f"{best} = {pick}({best}, {x}{nan})")
    found = f"tl.{sign}({best}, 1){ROW}"
    if not nan:
        return rows.name(sign, found)
    # tl.max and tl.min skip NaN, eager does not.
    return rows.name(
        sign, f'tl.where(tl.max(({best} != {best}).to(tl.int32), 1){ROW} > 0, float("nan"), {found})'
    )


def moments(rows: Rows, value: str) -> tuple[str, str]:
    """Mean and sum of squared deviations along rows; never a difference of large sums.

    One pass over blocks combines their moments as Chan, Golub and LeVeque (1979) do.
    """
    if rows.whole or not rows.one_pass:
        mean = rows.name("mean", f"{total(rows, value)} / {rows.columns}")
        return mean, total(rows, value, form=lambda x: f"({x} - {mean}) * ({x} - {mean})")
    mean = rows.name("mean", "tl.zeros([ROWS, 1], tl.float32)")
    spread = rows.name("spread", "tl.zeros([ROWS, 1], tl.float32)")
    with rows.sweep():
        x = rows.operand(value, "float32")
        rows.line(f"here = tl.minimum({rows.columns} - start, BLOCK)")
        rows.line(f"local = tl.sum({rows.masked(x, '0')}, 1){ROW} / here")
        rows.line(f"apart = {rows.masked(f'{x} - local', '0')}")
        rows.line(f"delta = local - {mean}")
        rows.line(f"{mean} += delta * here / (start + here)")
        rows.line(
            f"{spread} += tl.sum(apart * apart, 1){ROW} + delta * delta * start * here / (start + here)"
        )
    return mean, spread


def exponentials(rows: Rows, value: str) -> tuple[str, str]:
    """Largest element and sum of exp(x - largest) along rows, as in a stable softmax.

    One pass rescales the sum whenever the maximum grows (Milakov and Gimelshein, 2018).
    """
    infinity = '-float("inf")'
    if rows.whole:
        x = rows.operand(value, "float32")
        top = rows.name("top", f"tl.max({rows.masked(x, infinity)}, 1){ROW}")
        return top, total(rows, value, form=lambda x: f"tl.exp({x} - {top})")
    if not rows.one_pass:
        best = rows.name("best", f"tl.full([ROWS, BLOCK], {infinity}, tl.float32)")
        with rows.sweep():
            x = rows.masked(rows.operand(value, "float32"), infinity)
            rows.line(f"{best} = tl.maximum({best}, {x})")
        top = rows.name("top", f"tl.max({best}, 1){ROW}")
        return top, total(rows, value, form=lambda x: f"tl.exp({x} - {top})")
    top = rows.name("top", f"tl.full([ROWS, 1], {infinity}, tl.float32)")
    mass = rows.name("mass", "tl.zeros([ROWS, 1], tl.float32)")
    with rows.sweep():
        x = rows.name("x", rows.masked(rows.operand(value, "float32"), infinity))
        rows.line(f"higher = tl.maximum({top}, tl.max({x}, 1){ROW})")
        # While all is -inf there is no mass yet, and -inf - -inf would make NaN of it.
        rows.line(f"e = tl.where(({x} == {infinity}) & (higher == {infinity}), 0.0, tl.exp({x} - higher))")
        rows.line(f"{mass} = tl.where({top} == higher, {mass}, {mass} * tl.exp({top} - higher))")
        rows.line(f"{mass} += tl.sum(e, 1){ROW}")
        rows.line(f"{top} = higher")
    return top, mass


def _limit(dtype: str, sign: str) -> str:
    if dtype.startswith("float"):
        return '-float("inf")' if sign == "max" else 'float("inf")'
    bits = {"int64": 63, "int32": 31, "int16": 15, "int8": 7}.get(dtype, 31)
    return f"({-(2**bits)})" if sign == "max" else str(2**bits - 1)
