"""The code blocks of the documents and the examples of the docstrings run."""
import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [
    "README.md", "docs/adding_an_op.md", "docs/debugging.md", "docs/gradients.md", "docs/kernels.md",
    "docs/memory.md", "docs/threads.md"])
def test_the_code_of_a_document_runs(name, capsys):
    """All its python blocks in order, in one module, with the document's line numbers; text blocks are what they print."""
    text = (ROOT / name).read_text()
    lines = [""] * text.count("\n")
    for kind, body, start in ((f[1], f[2], text.count("\n", 0, f.start(2))) for f in FENCE.finditer(text)):
        if kind == "python":
            lines[start:start + body.count("\n")] = body.splitlines()
    exec(compile("\n".join(lines), str(ROOT / name), "exec"), {"__name__": "document"})
    assert capsys.readouterr().out == "".join(f[2] for f in FENCE.finditer(text) if f[1] == "text")


def modules_with_examples():
    for folder in ("api", "autodiff", "ir", "kernels", "lower", "tracer"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text():
                parts = path.relative_to(ROOT).with_suffix("").parts
                yield ".".join(("loopwright", *parts[folder == "api":])).removesuffix(".__init__")


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_the_examples_of_docstrings_run(name, tmp_path, monkeypatch):
    """What tuning finds for them is kept apart."""
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("LOOPWRIGHT_TUNE", raising=False)
    assert doctest.testmod(importlib.import_module(name), extraglobs={"np": np, "lw": lw}).failed == 0


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda p: p.name)
def test_decisions_have_their_parts(path):
    assert re.match(r"\d{3}-[a-z0-9-]+\.md$", path.name)
    text = path.read_text()
    assert all(f"## {part}" in text for part in ("Context", "Decision", "Consequence"))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(
    str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))])
def test_links_lead_somewhere(name):
    path = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{name} links to {target}"
