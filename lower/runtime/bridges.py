"""Calls of our own maths functions past a fault of LLVM: from functions that also pass arguments on the stack, by a bridge.

These functions leave half of the vector registers as they are, but not the frame pointer (`intel_ocl_bicc` with AVX-512), which
LLVM then saves around a call by pushing it. Where other calls of the same function push arguments, LLVM forgets that it has
taken it off again, and looks for all that lies on the stack 16 bytes too far (LLVM 22; pull request 114265 of LLVM mended other
cases of this): numbers are wrong, or addresses are.

Guarantees: text in which no function does both is as it was; a bridge is called as C functions are, and calls one function.
"""
from __future__ import annotations

import re

from loopwright.lower.runtime.pieces import Module, read
from loopwright.lower.target import Target

CONVENTION = "intel_ocl_bicc"
_BRIDGED = "{}.bridge"
_CALL = re.compile(rf"call {CONVENTION} (<[^>]*>|\w+) @([\w.$]+)\(")
_INLINED = re.compile(r"call [^@\n]*@([\w.$]+)\([^\n]*\) alwaysinline")
_ARGUMENTS = re.compile(r"call [^@%\n]*[@%][\w.$]+\((.*)\)")
_OF_WORDS = re.compile(r"(?:^|, )(?:ptr|i\d+)\b")
_OF_NUMBERS = re.compile(r"(?:^|, )(?:<|float\b|double\b)")
WORDS, NUMBERS = 6, 8  # arguments that registers hold


def bridged(text: str, target: Target) -> str:
    """A module's text with bridges where they are needed."""
    if CONVENTION not in text or "avx512f" not in target.enabled:
        return text
    module = read(text)
    inlined = {name: set(_INLINED.findall(body)) & module.functions.keys() for name, body in module.functions.items()}
    found = set[str]()
    for name in module.functions:
        whole = _with_inlined(name, inlined)
        if any(_CALL.search(module.functions[x]) for x in whole) and any(_pushes(module.functions[x]) for x in whole):
            found |= whole
    called = {name for x in found for _, name in _CALL.findall(module.functions[x])}
    if not called:
        return text
    for x in found:
        body = module.functions[x]
        text = text.replace(body, _CALL.sub(lambda m: f"call {m[1]} @{_BRIDGED.format(m[2])}(", body), 1)
    return "\n".join([text, *(_bridge(name, module) for name in sorted(called))])


def _with_inlined(name: str, inlined: dict[str, set[str]]) -> set[str]:
    """A function, and those that it takes in."""
    found, left = set[str](), [name]
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += inlined[one]
    return found


def _pushes(body: str) -> bool:
    """Whether a call in a function has more arguments than registers hold."""
    return any(len(_OF_WORDS.findall(given)) > WORDS or len(_OF_NUMBERS.findall(given)) > NUMBERS
               for given in _ARGUMENTS.findall(body))


def _bridge(name: str, module: Module) -> str:
    """The function by which another one is called."""
    header = module.headers.get(name) or module.shared[name]
    made = re.search(rf"{CONVENTION} (<[^>]*>|\w+) @[\w.$]+\((.*?)\)", header)
    assert made is not None
    kinds = re.findall(r"<[^>]*>|\b(?:float|double|i\d+)\b", made[2])
    given = ", ".join(f"{kind} %x{k}" for k, kind in enumerate(kinds))
    return (f"define internal {made[1]} @{_BRIDGED.format(name)}({given}) noinline nounwind willreturn memory(none) "
            f'"prefer-vector-width"="512" {{\n  %y = call {CONVENTION} {made[1]} @{name}({given})\n  ret {made[1]} %y\n}}')
