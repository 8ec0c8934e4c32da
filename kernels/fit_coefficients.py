"""How the numbers of `kernels.maths_tables` were found: `python kernels/fit_coefficients.py` prints that module.

Each polynomial interpolates its function at Chebyshev nodes in 400-bit arithmetic, in the relative error that the
caller needs: dividing out the exactly known leading terms first does that. Interpolation at these nodes is within a
factor of two of the best polynomial.
"""
from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.prec = 400
Function = Callable[[Any], Any]


def interpolate(f: Function, low: float, high: float, degree: int) -> list[float]:
    """Coefficients, highest first, of the polynomial through f at the Chebyshev nodes of [low, high]."""
    count = degree + 1
    a, b = mp.mpf(low), mp.mpf(high)
    nodes = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    matrix = mp.matrix(count, count)
    for row, x in enumerate(nodes):
        for column in range(count):
            matrix[row, column] = x ** (degree - column)
    return [float(c) for c in mp.lu_solve(matrix, mp.matrix([f(x) for x in nodes]))]


def rational(f: Function, low: float, high: float, top: int, bottom: int) -> tuple[list[float], list[float]]:
    """The same of a quotient of polynomials of these degrees, of which the second ends with 1."""
    count = top + bottom + 1
    a, b = mp.mpf(low), mp.mpf(high)
    matrix, values = mp.matrix(count, count), mp.matrix(count, 1)
    for row in range(count):
        x = (a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * row + 1) / (2 * count))
        values[row] = f(x)
        for column in range(count):
            matrix[row, column] = x ** (top - column) if column <= top else -values[row] * x ** (count - column)
    found = [float(c) for c in mp.lu_solve(matrix, values)]
    return found[:top + 1], [*found[top + 1:], 1.0]


def error(coefficients: list[float], f: Function, low: float, high: float) -> float:
    """The largest error over a grid, with the rounded coefficients."""
    worst = mp.mpf(0)
    for k in range(401):
        x = mp.mpf(low) + (mp.mpf(high) - mp.mpf(low)) * k / 400
        worst = max(worst, abs(mp.polyval([mp.mpf(c) for c in coefficients], x) - f(x)))
    return float(worst)


def around_zero(f: Function, value: float) -> Function:
    """f with its limit where it divides 0 by 0."""
    return lambda x: f(x) if abs(x) > mp.mpf(10) ** -40 else mp.mpf(value)


def odd(f: Function, value: float) -> Function:
    """(f(sqrt u) / sqrt u - 1) / u: what an odd function is beside its argument; value: its limit at 0."""
    return around_zero(lambda u: (f(mp.sqrt(u)) / mp.sqrt(u) - 1) / u, value)


def shifted(f: Function, centre: float) -> Function:
    """f around a centre."""
    return lambda t: f(centre + t)


def beside(value: Any, number: Any) -> float:
    """How far the nearest f32 or f64 is."""
    return float(abs(value - mp.mpf(float(number(float(value))))))


def beyond(x: Any) -> Any:
    """-log(1 - erf(x))"""
    return -mp.log(mp.erfc(x))


LN2 = mp.log(2)
HALF = float(LN2 / 2)
QUARTER = float(mp.pi / 4)
SQUARED = QUARTER ** 2 * 1.0005
# Beside 7/4, and with a value that f64 has nearly: what it adds for numbers beside 1 counts.
ERFC_CENTRE = min((1.75 + k * 2.0 ** -30 for k in range(-300, 301)), key=lambda x: beside(beyond(mp.mpf(x)), np.float64))
# name: (function, low, high, degree in f32 or None, degree in f64)
FITS: dict[str, tuple[Function, float, float, int | None, int | None]] = {
    # (e^r - 1 - r) / r^2 for |r| <= ln(2)/2
    "EXP": (around_zero(lambda r: (mp.expm1(r) - r) / r ** 2, 0.5), -HALF * 1.0005, HALF * 1.0005, 4, 10),
    # the same for |r| <= ln(2)/32
    "EXP_FINE": (around_zero(lambda r: (mp.expm1(r) - r) / r ** 2, 0.5), -HALF / 15.9, HALF / 15.9, 1, 4),
    "EXP_FINER": (around_zero(lambda r: (mp.expm1(r) - r) / r ** 2, 0.5), -HALF / 15.9, HALF / 15.9, None, 5),
    # (2^r - 1) / r for |r| <= 1/2, and 1/32
    "EXP2": (around_zero(lambda r: (mp.mpf(2) ** r - 1) / r, float(LN2)), -0.5, 0.5, 5, 10),
    "EXP2_FINE": (around_zero(lambda r: (mp.mpf(2) ** r - 1) / r, float(LN2)), -1 / 31.9, 1 / 31.9, 2, 5),
    # (log(1 + r) - r) / r^2 in the intervals of the logarithm's table
    "LOG": (around_zero(lambda r: (mp.log1p(r) - r) / r ** 2, -0.5), -1 / 31, 1 / 16, 3, 9),
    # (log2(1 + r) - r log2(e)) / r^2 for powers
    "POW": (around_zero(lambda r: (mp.log1p(r) - r) / r ** 2 / LN2, float(-0.5 / LN2)), -1 / 32, 1 / 32, 4, None),
    # (log2(1 + r) - (r - r^2 / 2) log2(e)) / r^3 in its finer intervals
    "POW_FINE": (around_zero(lambda r: (mp.log1p(r) - r + r ** 2 / 2) / r ** 3 / LN2, float(1 / LN2 / 3)), -1 / 32, 1 / 32,
                 None, 8),
    # (sin(sqrt u) / sqrt u - 1 + u / 6) / u^2 for sqrt u <= pi / 2
    "SIN": (around_zero(lambda u: (mp.sin(mp.sqrt(u)) / mp.sqrt(u) - 1 + u / 6) / u ** 2, 1 / 120), 0, 4 * SQUARED, 3, 6),
    # (sinh(sqrt u) / sqrt u - 1) / u, (cosh(sqrt u) - 1) / u for sqrt u <= ln(2)/2
    "SINH": (odd(mp.sinh, 1 / 6), 0, HALF ** 2 * 1.001, 2, 4),
    "COSH": (around_zero(lambda u: (mp.cosh(mp.sqrt(u)) - 1) / u, 0.5), 0, HALF ** 2 * 1.001, 2, 5),
    # (tan(sqrt u) / sqrt u - 1) / u for sqrt u <= pi / 4, and the like
    "TAN": (odd(mp.tan, 1 / 3), 0, SQUARED, 6, 14),
    "ASIN": (odd(mp.asin, 1 / 6), 0, 0.25, 5, 13),
    "ATAN_WIDE": (odd(mp.atan, -1 / 3), 0, 1, 8, None),
    # the same for sqrt u <= 7/16
    "ATAN_MIDDLE": (odd(mp.atan, -1 / 3), 0, (7 / 16) ** 2, None, 11),
    "ASINH": (odd(mp.asinh, -1 / 6), 0, 1.1875 ** 2, 9, None),
    # (acosh(1 + d) / sqrt(2 d) - 1) / d
    "ACOSH": (around_zero(lambda d: (mp.acosh(1 + d) / mp.sqrt(2 * d) - 1) / d, -1 / 12), 0, 0.5625, 4, None),
    "ATANH": (odd(mp.atanh, 1 / 3), 0, 0.25, 6, None),
    # the same for sqrt u <= 1/4
    "ATAN": (odd(mp.atan, -1 / 3), 0, 0.0626, None, 8),
    # erf(sqrt u) / sqrt u - 1 for sqrt u <= 1, without its constant's leading part
    "ERF": (around_zero(lambda u: mp.erf(mp.sqrt(u)) / mp.sqrt(u) - 1, float(2 / mp.sqrt(mp.pi) - 1)), 0, 1, 6, 13),
    # -log(1 - erf(2.2 + t)) for 1 to 3.97
    "ERFC": (shifted(beyond, mp.mpf("2.2")), -1.2, 1.77, 8, None),
    # the same left and right of 2.5, around the middle c of the interval
    "ERFC_NEAR": (shifted(beyond, ERFC_CENTRE), -0.751, 0.751, None, 16),
    "ERFC_FAR": (shifted(beyond, 4.25), -1.75, 1.75, None, 15),
    # ((1 + u)^(1/3) - 1) / u in the intervals of the cube root's tables
    "CBRT": (around_zero(lambda u: (mp.cbrt(1 + u) - 1) / u, 1 / 3), -1 / 8.9, 1 / 8.9, None, 11),
}


# of (tanh(sqrt u) / sqrt u - 1) / u for sqrt u <= 1, the degrees of top and bottom in both widths
TANH = {"32": (1, 2), "64": (3, 3)}


def reciprocal_near(low: float, high: float, single: bool, image: Function) -> Any:
    """A number near 1 / centre, at which image is nearly representable, so that the table adds no error of its own."""
    centre = 2 / (low + high)
    best, least = centre, mp.inf
    for k in range(-400, 401):
        c = float(np.float32(centre) + np.float32(k * 2.0 ** -23)) if single else centre + k * 2.0 ** -32
        exact = image(c)
        off = abs(exact - mp.mpf(float(np.float32(float(exact))) if single else float(exact)))
        if off < least:
            best, least = c, off
    return best


def log_table(single: bool, base: Any) -> list[float]:
    """1 / c for the 16 intervals of the top four significand bits; exactly 1 on both sides of 1."""
    out = []
    for i in range(16):
        low, high = (1 + i / 16, 1 + (i + 1) / 16) if i < 8 else (0.5 + i / 32, 0.5 + (i + 1) / 32)
        out.append(1.0 if i in (0, 15) else reciprocal_near(low, high, single, lambda c: mp.log(c, base)))
    return out


def log_rest(base: int, single: bool) -> tuple[Function, float, float]:
    """(log(1 + r) - factor r) / r to a base, factor being log e as the width has it; and the interval."""
    exact = 1 / mp.log(base)
    factor = mp.mpf(float(np.float32(float(exact)) if single else float(exact)))
    return around_zero(lambda r: mp.log1p(r) / r * exact - factor, float(exact - factor)), -1 / 31, 1 / 16


def cbrt_table(single: bool) -> list[float]:
    """1 / c for intervals of [1, 8) by the exponent's two low bits and the top three (two) of the significand."""
    count = 8 if single else 4
    out = [1.0] * (4 * count)
    for exponent in range(3):
        for i in range(count):
            low, high = (2.0 ** exponent * (1 + k / count) for k in (i, i + 1))
            where = ((exponent + 127) % 4) * count + i
            out[where] = reciprocal_near(low, high, single, lambda c: mp.cbrt(1 / mp.mpf(c)))
    return out


def pieces(f: Function, slope: float, degree: int, first: list[float] | None, end: float | None, *,
           single: bool, each: int = 4) -> list[list[float]]:
    """Centres, then coefficients, for the 16 intervals of x >= 0 in which 1 + slope x has the same exponent and two upper bits
    of its significand (or other ones, `each` of an exponent), in the order of these bits; the first begins at 0, around which
    its coefficients may be given. The centre is where f is nearly representable, so that the table adds no error of its own;
    that of the last one is the end from where on f is constant, so that it has that value there."""
    number, unit = (np.float32, 1) if single else (np.float64, 2 ** 28)
    edges = [(2.0 ** (i // each) * (1 + i % each / each) - 1) / slope for i in range(4 * each + 1)]
    rows = [] if first is None else [[0.0, *first]]
    for low, high in list(itertools.pairwise(edges))[len(rows):]:
        middle = number(end if end is not None and len(rows) == 4 * each - 1 else (low + high) / 2)
        near = (float(middle + k * unit * np.spacing(middle)) for k in range(-200, 201))
        centre = min(near, key=lambda x: beside(f(mp.mpf(x)), number))
        rows.append([centre, *interpolate(shifted(f, centre), low - centre, high - centre, degree)])
    return [list(column) for column in zip(*rows[each:], *rows[:each], strict=True)]  # the exponent of 1 ends in 11


def erfcx(x: Any) -> Any:
    """e^(x^2) erfc(x)"""
    return mp.exp(x * x) * mp.erfc(x)


# name: (function, its slope where it is 0 at 0, then for f32 and f64 the last argument, the slope of `pieces` and the degree)
PIECES: dict[str, tuple[Function, float | None, tuple[float, float], tuple[float, float], tuple[int, int]]] = {
    "TANH": (mp.tanh, 1.0, (9.5, 19.5), (1.57, 0.768), (5, 14)),
    "ERF": (mp.erf, float(2 / mp.sqrt(mp.pi)), (3.97, 6.0), (3.75, 2.49), (5, 13)),
    "ERFCX": (erfcx, None, (10.09, 27.3), (1.485, 0.549), (6, 14)),
}


# the same of 8 intervals: function, slope where it is 0, last argument, slope of `pieces` and degree, in f32
SHORT = {"TANH": (mp.tanh, 1.0, 9.5, 1.57, 7), "ERF": (mp.erf, float(2 / mp.sqrt(mp.pi)), 3.97, 3.77, 8)}


def show_pieces(name: str, columns: list[list[float]]) -> None:
    """Tables as source."""
    print(f"{name} = (")
    for column in columns:
        print("    (" + "\n     ".join(textwrap.wrap(", ".join(repr(v) for v in column), 118)) + "),")
    print(")")


def pow_table() -> list[float]:
    """1 / c for 32 intervals of [3/4, 3/2), with so few bits that z / c - 1 is exact, in f32 also."""
    out = []
    for i in range(32):
        below, above = (1 + (i + k) / 32 if i < 16 else 0.5 + (i + k) / 64 for k in (0, 1))
        unit = 64 if i < 16 else 32
        inverse = 1.0 if i in (0, 31) else round(2 / (below + above) * unit) / unit
        assert max(abs(below * inverse - 1), abs(above * inverse - 1)) <= 1 / 32
        out.append(inverse)
    return out


def less_steps(power: Any, count: int, bits: Any, shift: int) -> float:
    """2^(count / 16), less what an exponent gets that grows with the count: it is added with all other bits of the power."""
    return float((power.view(bits) - bits(count << shift)).view(power.dtype))


def split(x: Any, bits: int) -> float:
    """x rounded to a multiple of 2^-bits."""
    return float(mp.nint(x * mp.mpf(2) ** bits) / mp.mpf(2) ** bits)


def show(name: str, values: list[Any]) -> None:
    """One tuple as source."""
    lines = textwrap.wrap(", ".join(repr(v) for v in values), 120)
    print(f"{name} = (\n    " + "\n    ".join(lines) + ",\n)")


def tables() -> None:
    """The logarithm's and cube root's tables, and polynomials by pieces."""
    for bits, single, degree in (("32", True, 4), ("64", False, 10)):
        for name, base in (("LOG", mp.e), ("LOG2", 2), ("LOG10", 10)):
            inverse = log_table(single, base)
            show(f"{name}_INVERSE{bits}", inverse)
            show(f"{name}_OF{bits}", [0.0 if c == 1 else float(-mp.log(c, base)) for c in inverse])
            if base != mp.e:
                show(f"{name}_{bits}", interpolate(*log_rest(base, single), degree))
        inverse = cbrt_table(single)
        show(f"CBRT_INVERSE{bits}", inverse)
        show(f"CBRT_OF{bits}", [float(1 / mp.cbrt(c)) for c in inverse])
    show("CBRT32", interpolate(FITS["CBRT"][0], -1 / 16.8, 1 / 16.8, 3))
    for name, (f, limit, ends, slopes, degrees) in PIECES.items():
        for width, end, slope, degree in zip((32, 64), ends, slopes, degrees, strict=True):
            print(f"{name}_END{width}, {name}_SLOPE{width} = {end}, {slope}")
            first = None if limit is None else beside_zero(f, limit, 0.25 / slope, degree)
            constant = None if limit is None else end
            show_pieces(f"{name}_PIECES{width}", pieces(f, slope, degree, first, constant, single=width == 32))


    for name, (f, limit, end, slope, degree) in SHORT.items():
        first = beside_zero(f, limit, 0.5 / slope, degree)
        print(f"{name}_SHORT_SLOPE32 = {slope}")
        show_pieces(f"{name}_SHORT32", pieces(f, slope, degree, first, end, single=True, each=2))


def beside_zero(f: Function, limit: float, edge: float, degree: int) -> list[float]:
    """Coefficients around 0 of f, whose slope there is the limit; of f(x) - x where that is not 1, as x is added to it."""
    if limit == 1:
        return [*interpolate(around_zero(lambda x: (f(x) / x - 1) / x, 0.0), 0, edge, degree - 2), 1.0, 0.0]
    return [*interpolate(around_zero(lambda x: f(x) / x - 1, limit - 1), 0, edge, degree - 1), 0.0]


def steps() -> None:
    """Powers of two, logarithms for powers, angles, and 2 / pi in words."""
    inverse = pow_table()
    show("POW_INVERSE", inverse)
    for width, unit in ((32, 16), (64, 42)):
        logs = [-mp.log(c, 2) if c != 1 else mp.mpf(0) for c in inverse]
        high = [split(v, unit) for v in logs]
        show(f"POW_HIGH{width}", high)
        show(f"POW_LOW{width}", [float(v - mp.mpf(h)) for v, h in zip(logs, high, strict=True)])
        whole = float(np.float32(float(1 / LN2))) if width == 32 else float(1 / LN2)
        show(f"POW_SLOPE{width}", [whole, float(1 / LN2 - whole)])
    angles = [mp.atan(mp.mpf(k) / 2) for k in range(15)] + [mp.pi / 2]
    show("ATAN_OF64", [float(v) for v in angles])
    show("ATAN_LOST64", [float(v - mp.mpf(float(v))) for v in angles])
    sixth = -mp.mpf(1) / 6
    for bits, number in (("32", np.float32), ("64", np.float64)):
        near = float(number(float(sixth)))
        show(f"SIXTH{bits}", [near, float(sixth - near)])
    whole = float(-0.5 / LN2)
    show("POW_BEND64", [whole, float(-0.5 / LN2 - whole)])
    powers = [mp.mpf(2) ** (mp.mpf(k) / 16) for k in range(16)]
    show("POWERS32", [less_steps(np.float32(float(v)), k, np.uint32, 19) for k, v in enumerate(powers)])
    show("POWERS64", [less_steps(np.float64(float(v)), k, np.uint64, 48) for k, v in enumerate(powers)])
    show("POWERS_LOST64", [float(v / mp.mpf(float(v)) - 1) for v in powers])
    show("ERFC_CENTRE64", [ERFC_CENTRE])
    with mp.workprec(1500):
        whole = int(mp.floor(2 / mp.pi * mp.mpf(2) ** 1344))
    words = [0, *((whole >> (64 * k)) & (2 ** 64 - 1) for k in reversed(range(21)))]
    show("TWO_OVER_PI", [w - 2 ** 64 if w >> 63 else w for w in words])


def main() -> None:
    """Print the module."""
    print('"""Numbers of `kernels.maths`, printed by `kernels/fit_coefficients.py`, which says what each is."""')
    print("# Polynomials, highest coefficient first; the comment is the largest error of what is fitted.")
    for name, (f, low, high, single, double) in FITS.items():
        for bits, degree in (("32", single), ("64", double)):
            if degree is not None:
                c = interpolate(f, low, high, degree)
                print(f"# {name}{bits}: {error(c, f, low, high):.1e}")
                show(f"{name}{bits}", c)
    for bits, degrees in TANH.items():
        for name, c in zip(("TOP", "BOTTOM"), rational(odd(mp.tanh, -1 / 3), 0, 1.0005, *degrees), strict=True):
            show(f"TANH_{name}{bits}", c)
    tables()
    steps()


if __name__ == "__main__":
    main()
