"""A nest to the text of all its functions: those of the nest, and others that are made when calls need them.

Guarantees: those of `emit.py`.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from loopwright.ir.nest import Nest, altered
from loopwright.lower.codegen.bodies import in_unit, made_later
from loopwright.lower.codegen.emit import Generator
from loopwright.lower.codegen.kernel_text import KernelText, exported
from loopwright.lower.codegen.streams import reading_ahead, without_short
from loopwright.lower.runtime.later import amx_of, far_of, past_of, short_of, usual_of
from loopwright.lower.target import Target


def emit_nest(nest: Nest, target: Target, fast_math: bool = False, *, apart: bool = False) -> KernelText:
    """The functions of a nest: `void @<name>(ptr buffers..., i64 symbols..., ptr %error)` and what it calls. apart: without
    what only short rows need, where the caller has a place for it."""
    made = emitted(nest, target, fast_math, apart=apart)
    if nest.instead is None:
        return made
    unit, usual = f"@{amx_of(nest.name)}", usual_of(nest.name)
    if apart:
        chosen = in_unit(nest, nest.name, lambda _: unit, made_later(usual))
        return _together((made, chosen), {**made.apart, usual: usual_text(nest, target, fast_math)})
    chosen = in_unit(nest, nest.name, lambda _: unit, lambda _: f"@{usual}")
    return _together((made, emit_nest(_usual(nest), target, fast_math), chosen), made.apart)


def emit_other_way(nest: Nest, target: Target, usual: str) -> KernelText:
    """The functions of a nest that uses a tile unit, for which a nest of this name does what is done instead."""
    chosen = in_unit(nest, nest.name, lambda _: f"@{amx_of(nest.name)}", lambda _: f"@{usual_of(usual)}")
    return _together((emitted(nest, target), chosen), {})


def _usual(nest: Nest) -> Nest:
    """What is done instead of a nest that uses a tile unit."""
    assert nest.instead is not None
    return altered(nest.instead(), name=usual_of(nest.name))


def usual_text(nest: Nest, target: Target, fast_math: bool) -> Callable[[], KernelText]:
    """Makes the function of what is done instead, for others to call."""
    return lambda: exported(emit_nest(_usual(nest), target, fast_math), usual_of(nest.name))


def _together(texts: Sequence[KernelText], apart: Mapping[str, Callable[[], KernelText]]) -> KernelText:
    """The text of the last, and of those that it calls."""
    declarations, constants = ([getattr(x, kind) for x in texts] for kind in ("declarations", "globals"))
    return KernelText(texts[-1].name, "\n".join(x.text for x in texts), frozenset[str]().union(*declarations),
                      frozenset[str]().union(*constants), apart)


def emitted(nest: Nest, target: Target, fast_math: bool = False, *, apart: bool = False) -> KernelText:
    """The functions of a nest; of one that uses a tile unit that alone which does, see `bodies.in_unit`."""
    generator = Generator(nest, target, fast_math, False if apart else None)
    made = generator.run()
    later = {}
    if apart and generator.of_one:
        def short() -> KernelText:
            inner = Generator(replace(nest, few=(), ones=None), target, fast_math, True)
            inner.run()
            return exported(inner.text(inner.of_one), short_of(nest.name))
        later[short_of(nest.name)] = short
    if (narrow := generator.far) is not None:
        def from_memory() -> KernelText:
            inner = replace(without_short(narrow), name=far_of(nest.name))
            return exported(Generator(inner, target, fast_math, None).run(), inner.name)
        later[far_of(nest.name)] = from_memory
    if results := generator.past:
        def past() -> KernelText:
            inner = replace(reading_ahead(without_short(narrow or nest), results), name=past_of(nest.name))
            return exported(Generator(inner, target, fast_math, None, frozenset([b.name for b in results])).run(), inner.name)
        later[past_of(nest.name)] = past
    return replace(made, apart=later)
