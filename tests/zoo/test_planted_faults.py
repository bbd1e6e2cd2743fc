"""`ablate zoo --check --quick` on twenty faults, each in a mixer of the guides: it finds most within seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guides.guide import ROOT, files_of

pytestmark = [pytest.mark.slow, pytest.mark.processes]
FAULTS = (
    ("fading", "k = on_text(k.transpose(1, 2), step).transpose(1, 2)", "k = k * 1", "left_padding"),
    ("fading", "return self.heads\n", "return 0\n", "parameters"),
    ("fading", "self.chunk, cache)", "self.chunk, None)", "caching"),
    ("fading", "scan(q * self.scale", "scan(q.flip(2) * self.scale", "causality"),
    ("fading", "F.logsigmoid(self.keep.float())", "F.logsigmoid(self.keep.float()).detach()", "gradients"),
    ("ema", "averages[:, -1]", "averages[:, 0]", "caching"),
    ("ema", "values = on_text(self.v(x), step)", "values = self.v(x)", "left_padding"),
    ("ema", "matmul_cost(matrices + number(self.features), matrices)", "matmul_cost(matrices, matrices)", "parameters"),
    ("ema", "        return number(self.features)\n", "        return 2 * number(self.features)\n", "cache_bytes"),
    ("ema", "torch.zeros_like(values[:, 0])", "values.mean(1)", "causality"),
    ("ema", "matrices = 2 * d_model", "matrices = 3 * d_model", "flops"),
    ("twice", ", rank=STEPS)", ")", "flops"),
    (
        "twice",
        "strength = on_text(self.strength(x).sigmoid(), step)",
        "strength = self.strength(x).sigmoid()",
        "left_padding",
    ),
    ("twice", "strengths, out = STEPS * self.heads", "strengths, out = self.heads", "parameters"),
    ("gsa", "added = on_text(1 - decay.exp(), step)", "added = 1 - decay.exp()", "left_padding"),
    ("gsa", "cache, name=VALUES", "cache, name=KEYS", "caching"),
    ("gsa", "return keys + ScanCost(", "return ScanCost(heads, 1, heads, 1, self.chunk) + ScanCost(", "flops"),
    ("tied", "Keys(mean_keys(context), context, context)", "Keys(context, context, context)", "needed_flops"),
    ("tied", "(k,), places = tokens.extend((k,), step.index)", "tokens.extend((k,), step.index)", "caching"),
    ("tied", "return self.heads * number(self.head_dim) * capacity", "return self.heads * capacity", "cache_bytes"),
)
"""Mixer, its code, the fault in place of that, and the check that is to fail."""
SECONDS = 30
"""Processor time that a check may take."""
PROGRAM = """
import json, sys, time
sys.path.insert(0, ROOT)
import zoo.mixers
zoo.mixers.__path__.append(sys.argv[1])
from zoo.conformance.checking import check_variant
for name in sys.argv[2:]:
    start = time.process_time()
    failed = [finding.check for finding in check_variant(name, quick=True) if finding.failures]
    print(json.dumps([name, failed, time.process_time() - start]), flush=True)
"""


def test_most_of_twenty_faults_are_found_quickly_and_none_where_there_is_none(tmp_path: Path) -> None:
    pages = ("adding_a_mixer.md", "adding_a_scan.md", "adding_attention.md")
    codes = {Path(path).stem: text for page in pages for path, text in files_of(page).items()}
    right = sorted({mixer for mixer, *_ in FAULTS})
    files = {mixer: codes[mixer] for mixer in right}
    for number, (mixer, before, after, _) in enumerate(FAULTS):
        assert codes[mixer].count(before) == 1, before
        name = f"{mixer}_{number}"
        files[name] = codes[mixer].replace(before, after).replace(f'"{mixer}"', f'"{name}"')
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    program = PROGRAM.replace("ROOT", repr(str(ROOT)))
    command = [sys.executable, "-c", program, str(tmp_path), *files]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    said = [json.loads(line) for line in run.stdout.splitlines()]
    failed = {name: checks for name, checks, _ in said}
    assert [name for name in right if failed[name]] == []
    found = [f"{mixer}_{i}" for i, (mixer, _, _, check) in enumerate(FAULTS) if check in failed[f"{mixer}_{i}"]]
    assert len(found) >= 18, {name: checks for name, checks in failed.items() if name not in (*found, *right)}
    assert max(seconds for _, _, seconds in said) < SECONDS
