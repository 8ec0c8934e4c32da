"""Hand-written entry points for tests of the runtime: text that defines `@entry`, and its loading."""
from __future__ import annotations

from loopwright.ir.graph import Graph, Value
from loopwright.ir.signature import Signature, Version
from loopwright.lower.runtime import fallback
from loopwright.lower.runtime.linking import assembled, imported, link, module_texts
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer
from loopwright.lower.target import host_target


class Loaded:
    """A version with its code, as `compile_version` gives it. `in_python` takes the way of unknown interpreters."""

    def __init__(self, version, entry_text, raise_error=None, in_python=False):
        texts = module_texts(version, entry_text)
        self.version, self.raise_error, self.in_python = version, raise_error, in_python
        self.library = link(version, assembled(texts, host_target()), imported(texts), raise_error)

    @property
    def dispatch(self):
        return None if self.in_python else self.library["dispatch"]

    def call(self, args, kwargs):
        return fallback.call(self.version, self.library["entry"], self.raise_error, args, kwargs)


def version_of(trees, params, results, tree, *, keywords=(), guards=(), hidden=(), objects=()):
    """A version whose graph has these parameter and result types and no nodes: what the runtime needs to know of it."""
    graph = Graph(tuple(map(Value, params)), (), tuple(map(Value, results)))
    return Version("f", Signature(tuple(trees), tuple(keywords)), graph, tuple(guards), tree, tuple(hidden), tuple(objects))


def copying(graph, which, status="0"):
    """Result j is a copy of parameter which[j]; then the entry returns `status`."""
    w = Writer()
    w.label("entry")
    sizes = Sizes(w, {s: w.load("i64", "%sizes", 8 * k) for k, s in enumerate(graph.symbols)})
    for j, k in enumerate(which):
        type = graph.params[k].type
        count = sizes.extent(type.size * type.dtype.itemsize)
        source, target = w.load("ptr", "%args", 8 * k), w.load("ptr", "%results", 8 * j)
        w.call("void", "llvm.memcpy.p0.p0.i64", f"ptr {target}", f"ptr {source}", f"i64 {count}", "i1 false")
    w.do(f"ret i32 {status}")
    return "\n".join((*w.declarations, w.body(ENTRY)))


ENTRY = "i32 @entry(ptr %args, ptr %results, ptr %sizes, ptr %error)"
ADD_ONE = f"""define {ENTRY} {{
entry:
  %x = load ptr, ptr %args
  %y = load ptr, ptr %results
  %n = load i64, ptr %sizes
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %loop, label %done
loop:
  %x.at = getelementptr float, ptr %x, i64 %i
  %y.at = getelementptr float, ptr %y, i64 %i
  %a = load float, ptr %x.at
  %b = fadd float %a, 1.0
  store float %b, ptr %y.at
  %i.next = add i64 %i, 1
  br label %head
done:
  ret i32 0
}}
"""
