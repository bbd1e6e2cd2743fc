"""Malformed studies: each gives one readable line with the file, the position, the path and the reason.

Positions are those of the words in the text below, counted by hand: `@` marks the place that the message must name,
and is taken out before the study is read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.data import DataIdentity
from ablate.planning.make_plan import make_plan
from ablate.study.reading import load_study
from ablate.study.study import StudyError

HEAD = """question: Does it matter?
baseline: pre
base: {preset: small, d_model: 64, block.ffn.d_ff: 4x}
arms:
  post: {block.norm_placement: post}
budget: {flops: 1e12}
"""


def arm(text: str) -> str:
    """The study with one more arm."""
    return HEAD.replace("budget:", f"  x: {text}\nbudget:")


def tune(text: str) -> str:
    return f"{HEAD}tune: {text}\n"


def ladder(text: str) -> str:
    """A ladder of which the first size is to blame."""
    return f"{HEAD}ladder:\n  s: {text}\n  l: {{base.d_model: 128}}\n"


def claims(text: str) -> str:
    """A study with one claim."""
    return f"{HEAD}claims:\n  - {text}\n"


def place_of(marked: str) -> tuple[str, str]:
    """The text without its mark, and `line:column` of it."""
    before, mark, after = marked.partition("@")
    assert mark, "every case marks a place"
    return before + after, f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


CASES = {
    # the file
    "empty": ("@", "the file is empty"),
    "comments only": ("@# nothing\n", "the file is empty"),
    "a list": ("@- question\n", "must be a map, with a question"),
    "a tab": (HEAD + "train:\n@\tlr: 1\n", "not YAML: tab in the indentation: use spaces"),
    "an open bracket": (HEAD + "seeds: [1, 2\n@", "not YAML: expected ',' or ']'"),
    "a duplicate key": (HEAD + "@question: Again?\n", "question: given twice (first on line 1)"),
    "a tag": (HEAD + "seeds: @!!python/name:os.system 3\n", "seeds: tags are not allowed here"),
    # sizes that no machine has
    "a width": (HEAD.replace("d_model: 64", "d_model: @1e11"), "base.d_model: more than 1e+15 parameters"),
    "a width beyond floats": (HEAD.replace("d_model: 64", "d_model: @1e308"), "less than or equal to 1000000000000"),
    "heads": (arm(f"{{block.mixer.heads: @{10**400}}}"), "less than or equal to 1000000000000, not 1000000"),
    "a layer": (arm(f"{{block.ffn.d_ff: @{10**400}}}"), "a positive whole number or a ratio to d_model such as 4x"),
    "a ratio": (arm(f"{{block.ffn.d_ff: @{10**400}x}}"), "a positive whole number or a ratio to d_model such as 4x"),
    "a ratio to nothing": (arm("{block.ffn.d_ff: @8/00x}"), "a positive whole number or a ratio to d_model such as 4x"),
    "tables": (arm("{block.mixer: {kind: engram, hashes: @1000000000}}"), "hashes: must be less than or equal to 32"),
    "modules": (arm("{mtp: {depth: @1000000000}}"), "depth: must be less than or equal to 10000"),
    "a width of an arm": (arm("{d_model: @1000000000}"), "arms.x.d_model: more than 1e+15 parameters"),
    # unknown keys, at each level
    "top level": (HEAD + "@trian: {}\n", "trian: unknown key (did you mean 'train'?)"),
    "train": (HEAD + "train: {@bacth: 3}\n", "train.bacth: unknown key (did you mean 'batch'?)"),
    "data": (HEAD + "data: {source: stdlib, @validation_fractoin: 0.1}\n", "did you mean 'validation_fraction'?"),
    "tokenizer": (
        HEAD + "data: {source: stdlib, tokenizer: {kind: bpe, @vocabsize: 512}}\n",
        "data.tokenizer.vocabsize: unknown key (did you mean 'vocab_size'?)",
    ),
    "measure": (HEAD + "measure: {@contxts: [64]}\n", "measure.contxts: unknown key (did you mean 'contexts'?)"),
    "probes": (HEAD + "probes: {@evry: 0.1}\n", "probes.evry: unknown key (did you mean 'every'?)"),
    "a probe": (
        HEAD + "probes: @[log_z, gradient_nrm]\n",
        "unknown probe 'gradient_nrm' (did you mean 'gradient_norm'?)",
    ),
    "a probe in a map": (HEAD + "probes: {which: @[entropy]}\n", "unknown probe 'entropy'"),
    "a probe twice": (HEAD + "probes: @[log_z, log_z]\n", "a probe is given twice: log_z"),
    "probes: some": (HEAD + "probes: @some\n", "must be all, or a list of activation_variance, "),
    "no probe": (HEAD + "probes: @[]\n", "must be all, or a list of activation_variance, "),
    "probes too often": (HEAD + "probes: {every: @0}\n", "probes.every: must be greater than 0, not 0"),
    "positions": (
        HEAD + "evals: {positions: {@multiple: [2]}}\n",
        "evals.positions.multiple: unknown key (did you mean 'multiples'?)",
    ),
    "evals": (HEAD + "evals: {@task: []}\n", "evals.task: unknown key (did you mean 'tasks'?)"),
    "budget": (HEAD.replace("flops", "@flop"), "budget.flop: unknown key (did you mean 'flops'?)"),
    "base": (HEAD.replace("d_model", "@d_modle"), "base.d_modle: unknown key (did you mean 'd_model'?)"),
    "arm": (
        arm("{@block.norm_placment: post}"),
        "arms.x.block.norm_placment: unknown key (did you mean 'norm_placement'?)",
    ),
    "arm, nested": (
        arm("{block: {mixer: {@kv_head: 2}}}"),
        "arms.x.block.mixer.kv_head: unknown key (did you mean 'kv_heads'?)",
    ),
    "arm, part of another kind": (
        arm("{block.ffn: {kind: gelu, @dff: 4x}}"),
        "arms.x.block.ffn.dff: unknown key (did you mean 'd_ff'?)",
    ),
    "arm, train": (arm("{train: {@lrr: 1}}"), "arms.x.train.lrr: unknown key (did you mean 'lr'?)"),
    "scale": (HEAD + "scales: {cpu: {@base.d_modle: 32}}\n", "scales.cpu.base.d_modle: unknown key"),
    "scale not taken": (HEAD + "scales: {smoke: {@trian.lr: 1}}\n", "scales.smoke.trian.lr: unknown key"),
    "role": (
        HEAD + "train: {weight_decay: {@embeding: 0, embedding: 0, input: 0, output: 0, head: 0}}\n",
        "train.weight_decay.embeding: unknown key (did you mean 'embedding'?)",
    ),
    "roles left out": (
        HEAD + "train: {weight_decay: @{embedding: 0, input: 0.1}}\n",
        "train.weight_decay: needs each of embedding, input, output, head; missing: output, head",
    ),
    # what the optimizer does not use
    "optimizer": (HEAD + "train: {optimizer: @adamx}\n", "unknown kind 'adamx' (did you mean 'adamw'?)"),
    "betas of sgd": (HEAD + "train: {optimizer: sgd, betas: @[0.9, 0.95]}\n", "train.betas: sgd has no betas"),
    "momentum of adamw": (
        HEAD + "train: {@optimizer.momentum: 0.9}\n",
        "train.optimizer.momentum: unknown key (a setting of muon and sgd, not of adamw)",
    ),
    "momentum of an arm": (
        arm("{train.optimizer: {kind: lion, @momentum: 0.9}}"),
        "arms.x.train.optimizer.momentum: unknown key (a setting of muon and sgd, not of lion)",
    ),
    "typo in a kind's own": (
        HEAD + "train: {optimizer: {kind: muon, @momentun: 0.9}}\n",
        "train.optimizer.momentun: unknown key (did you mean 'momentum'?)",
    ),
    "betas twice": (
        HEAD + "train: {betas: @[0.9, 0.9], optimizer.betas: [0.9, 0.8]}\n",
        "train.betas: given twice (also as optimizer.betas)",
    ),
    # wrong types, and the traps of YAML 1.1
    "lr: fast": (HEAD + "train: {lr: @fast}\n", "train.lr: must be a number, not 'fast'"),
    "lr as text": (HEAD + "train: {lr: @'1e-3'}\n", "must be a number, not the text '1e-3' (remove quotes; "),
    "batch as a fraction": (HEAD + "train: {batch: @1.5}\n", "train.batch: must be a whole number, not 1.5"),
    "compile: yes": (HEAD + "train: {compile: @yes}\n", "train.compile: must be true or false, not 'yes'"),
    "seeds: two": (HEAD + "seeds: @two\n", "seeds: must be a number of seeds"),
    "seeds: true": (HEAD + "seeds: @true\n", "seeds: must be a number of seeds"),
    "norm: off": (arm("{block.norm: @off}"), "arms.x.block.norm: unknown kind 'off'"),
    "schedule": (HEAD + "train: {schedule: @cosin}\n", "unknown schedule 'cosin' (did you mean 'cosine'?)"),
    "base as text": (HEAD.replace("{preset: small, d_model: 64, block.ffn.d_ff: 4x}", "@small"), "base: must be a map"),
    "arms as a list": (
        HEAD.replace("\n  post: {block.norm_placement: post}", " @[post]"),
        'arms: must be a map, not ["post"]',
    ),
    "arm as null": (arm("@null"), "arms.x: must be a map, not null"),
    "train as a list": (HEAD + "train: @[1]\n", "train: must be a map, not [1]"),
    "scales as a list": (HEAD + "scales: @[cpu]\n", "scales: must be a map of scales"),
    "scale as a number": (HEAD + "scales: {cpu: @3}\n", "scales.cpu: must be a map of edits"),
    # what is missing
    "no question": ("@" + HEAD.replace("question: Does it matter?\n", ""), "question: is missing"),
    "empty question": (HEAD.replace("Does it matter?", "@''"), "question: string should have at least 1 character"),
    "no base": (
        "@" + HEAD.replace("base: {preset: small, d_model: 64, block.ffn.d_ff: 4x}\n", ""),
        "base: is missing",
    ),
    "no preset": (HEAD.replace("{preset: small, ", "@{"), "base.preset: is missing"),
    "no budget": (
        HEAD.replace("budget: {flops: 1e12}\n", "scales: {cpu: {}, @tiny: {seeds: 1}}\n"),
        "scales.tiny: needs budget, which only shipped scales (smoke, cpu, ",
    ),
    # nothing where a value should be
    "an empty arm": (
        HEAD.replace("  post: {block.norm_placement: post}", "  @post:"),
        "arms.post: must be a map, not null",
    ),
    "empty arms": (
        HEAD.replace("arms:\n  post: {block.norm_placement: post}", "@arms:\n  # none\n"),
        "arms: must be a map",
    ),
    "an empty section": (HEAD + "@train:\n\nseeds: 2\n", "train: must be a map, not null"),
    "an empty setting": (HEAD + "train:\n  @lr:\n  batch: 4\n", "train.lr: must be a number, not null"),
    "an empty setting in braces": (HEAD + "train: {@lr: , batch: 4}\n", "train.lr: must be a number, not null"),
    "an empty item": (HEAD + "measure:\n  contexts:\n    @-\n    - 64\n", "measure.contexts.0: must be a whole number"),
    # text that needs quotes
    "a colon in text": (
        HEAD.replace("Does it matter?", "Pre@: or post?"),
        'not YAML: mapping values are not allowed here: quote text that contains a colon, "like: this"',
    ),
    "a key too far to the right": (HEAD + "train:\n  lr: 1e-3\n    batch@: 4\n", "indent all keys of a map equally"),
    "text from an at": (HEAD.replace("Does", "@@"), "quote text that begins with this character"),
    "text from a star": (HEAD.replace("Does", "@*Does"), "quote text that begins with *"),
    "text from an exclamation mark": (HEAD.replace("Does", "@!Does"), "quote text that begins with !"),
    "text from a bracket": (HEAD.replace("Does it", "[Does] @it"), "quote the whole value, or none of it"),
    "text from a dash": (HEAD.replace("Does", "@- Does"), "quote text that begins with -"),
    "text from a question mark": (HEAD.replace("Does", "@? does"), "quote text that begins with ?"),
    "no space after a colon": (HEAD + "@seeds:3\n", "write `key: value`, with a space after the colon"),
    "a bracket before a key": (HEAD + "source: [a\nseeds@: 2\n", "close the bracket above"),
    # paths for data
    "a path as data": (
        HEAD + "data: @t.txt\n",
        "data.source: unknown source 't.txt': write `data: {source: files, paths: [t.txt]}`",
    ),
    "a path as a source": (HEAD + "data: {source: @t.txt}\n", "write `data: {source: files, paths: [t.txt]}`"),
    "a pattern as data": (HEAD + "data: @my/*.txt\n", 'write `data: {source: files, paths: ["my/*.txt"]}`'),
    "paths as data": (
        HEAD + "data: @[a.txt, b.txt]\n",
        "must be a map with the key source: write `data: {source: files, paths: [a.txt, b.txt]}`",
    ),
    "tokens as data": (HEAD + "data: @t.bin\n", "write `data: {source: tokens, paths: [t.bin]}`"),
    "a dataset as data": (
        HEAD + "data: @org/name\n",
        "or `data: {source: hf, path: org/name}` for a dataset on the Hugging Face Hub",
    ),
    "a word as data": (HEAD + "data: @wikitext\n", "data.source: unknown source 'wikitext': one of addition, "),
    "empty budget": (
        HEAD.replace("{flops: 1e12}", "@{}"),
        "budget: needs exactly one of flops, tokens, seconds and tokens_per_parameter, but has none of them",
    ),
    "two budgets": (
        HEAD.replace("{flops", "@{tokens: 1e6, flops"),
        "budget: needs exactly one of flops, tokens, seconds and tokens_per_parameter, but has flops and tokens",
    ),
    "no time": (HEAD.replace("flops: 1e12", "seconds: @0"), "budget.seconds: must be greater than 0, not 0"),
    "negative time": (HEAD.replace("flops: 1e12", "seconds: @-5"), "budget.seconds: must be greater than 0, not -5"),
    "a step of no size": (
        HEAD.replace("1e12}", "1e12, parameters: {knob: block.ffn.d_ff, step: @0}}"),
        "budget.parameters.step: must be greater than 0, not 0",
    ),
    "an unknown count": (
        HEAD.replace("1e12}", "1e12, parameters: {knob: block.ffn.d_ff, count: @totl}}"),
        "budget.parameters.count: unknown count 'totl' (did you mean 'total'?)",
    ),
    "an unknown key beside the knob": (
        HEAD.replace("1e12}", "1e12, parameters: {knob: block.ffn.d_ff, @stp: 8}}"),
        "budget.parameters.stp: unknown key (did you mean 'step'?)",
    ),
    "the vocabulary as a knob": (
        HEAD.replace("1e12}", "1e12, parameters: @vocab_size}"),
        "budget.parameters: cannot be vocab_size, which the data determine",
    ),
    "files without paths": (HEAD + "data: @{source: files}\n", "data.paths: is missing"),
    "no source": (HEAD + "data: @{tokenizer: bytes}\n", "data: needs the key source"),
    "null as data": (HEAD + "data: @null\n", "data: must be a map with the key source"),
    # values out of range
    "no margin": (HEAD + "margin: @0\n", "margin: must be greater than 0, not 0"),
    "negative budget": (HEAD.replace("1e12", "@-1"), "budget.flops: must be greater than 0, not -1"),
    "infinite budget": (HEAD.replace("1e12", "@.inf"), "budget.flops: must be a finite number"),
    "seeds that tuning chooses on": (
        HEAD + "tune: {seeds: 3}\nseeds: @[7, 1001, 1002, 1003]\n",
        "seeds: cannot include 1001, 1002, since tuning uses 1000 to 1002: choose others",
    ),
    "a contrast of one": (HEAD + "contrasts: [@post]\n", "must be two arms, `ONE - OTHER`, not 'post'"),
    "a word for a section": (HEAD + "measure: @no\n", "measure: must be a map or null, not 'no'"),
    "a word for an evaluation": (HEAD + "evals: {recall: @yes}\n", "must be a map, true, false or null, not 'yes'"),
    "another name of a setting": (HEAD + "train: {@learning_rate: 1}\n", "unknown key (did you mean 'lr'?)"),
    "half a token": (HEAD.replace("flops: 1e12", "tokens: @1.5"), "budget.tokens: must be a whole number"),
    "zero layers": (arm("{n_layers: @0}"), "arms.x.n_layers: must be greater than 0, not 0"),
    "zero context measured": (HEAD + "measure: {contexts: [64, @0]}\n", "measure.contexts.1: must be greater than 0"),
    "negative limit": (HEAD + "evals: {limit: @-1}\n", "evals.limit: must be greater than 0, not -1"),
    "no contrast": (HEAD + "contrasts: @post - x\n", "contrasts: must be a list"),
    "a contrast with nobody": (HEAD + "contrasts: [@post - pots]\n", "unknown arm 'pots' (did you mean 'post'?)"),
    "a contrast with the baseline": (HEAD + "contrasts: [@post - pre]\n", "is already compared with the baseline"),
    "a claim of a stranger": (claims("{arm: @pots, expect: better}"), "unknown arm 'pots' (did you mean 'post'?)"),
    "a claim against a stranger": (claims("{arm: post, against: @per, expect: better}"), "did you mean 'pre'?"),
    "an order with a stranger": (claims("{order: [pre, @pots]}"), "claims.0.order.1: unknown arm 'pots'"),
    "a claim against itself": (claims("@{arm: pre, expect: better}"), "compares pre with itself"),
    "a size without what to expect": (claims("@{arm: post, by: 0.1}"), "`by` needs `expect: better`"),
    "an arm without what to expect": (claims("@{arm: post}"), "needs `arm` and `expect`, or `order`"),
    "an order of one": (claims("@{order: [post]}"), "`order` needs two or more arms, each only once"),
    "an order with a repetition": (
        claims("@{order: [post, pre, post]}"),
        "`order` needs two or more arms, each only once",
    ),
    "an order and an arm": (claims("@{order: [post, pre], arm: post}"), "`order` cannot be combined with arm"),
    "an unknown measure": (
        claims("{arm: post, expect: better, measure: @kv_byte}"),
        "unknown measure 'kv_byte' (did you mean 'kv_bytes'?)",
    ),
    "a measure like none": (claims("{arm: post, expect: better, measure: @x}"), "one of loss, kv_bytes"),
    "an unknown outcome": (claims("{arm: post, expect: @best}"), "unknown expect 'best' (did you mean 'better'?)"),
    "an unknown key of a claim": (claims("{arm: post, expect: better, @agianst: pre}"), "did you mean 'against'?"),
    "a factor below 1": (
        claims("@{arm: post, expect: better, measure: memory, by: 0.5}"),
        "`by` is a factor for memory, and must be above 1, not 0.5",
    ),
    "stalling by": (claims("@{arm: post, expect: stalls, by: 1}"), "leave out by, against and measure"),
    "the same loss within": (claims("@{arm: post, expect: same, by: 0.1}"), "margin decides which losses are the same"),
    "answers to text": (
        claims("{arm: post, expect: better, measure: @accuracy}"),
        "text has no answers",
    ),
    "a task that is not asked": (
        claims("{arm: post, expect: better, measure: @piqa/acc}") + "evals: {tasks: [arc_easy]}\n",
        "the study does not evaluate 'piqa': one of arc_easy",
    ),
    "a contrast with itself": (HEAD + "contrasts: [@post - post]\n", "compares post with itself"),
    "a seed twice": (HEAD + "seeds: @[1, 2, 1]\n", "seeds: a seed is given twice: 1, 2, 1"),
    "a seed too large": (HEAD + "seeds: @[9223372036854775808]\n", "seeds: must be a number of seeds"),
    "no context measured": (HEAD + "measure: {contexts: @[]}\n", "measure.contexts: needs at least one"),
    "no batch measured": (HEAD + "measure: {batches: @[]}\n", "measure.batches: needs at least one"),
    "window of nothing": (
        HEAD + "evals: {positions: {multiples: [1, @0]}}\n",
        "evals.positions.multiples.1: must be greater than 0, not 0",
    ),
    "beta of 1": (HEAD + "train: {betas: [0.9, @1.0]}\n", "train.betas.1: must be less than 1, not 1.0"),
    "one beta": (HEAD + "train: {betas: @[0.9]}\n", "train.betas: must be two numbers, not 1"),
    "three betas": (
        HEAD + "train: {optimizer: {kind: lion, betas: @[0.9, 0.9, 0.9]}}\n",
        "train.optimizer.betas: must be two numbers, not 3",
    ),
    "negative weight decay": (
        HEAD + "train: {weight_decay: @-1}\n",
        "train.weight_decay: must be a number of at least 0",
    ),
    "a negative seed": (HEAD + "seeds: @[-1]\n", "seeds: must be a number of seeds"),
    # unknown names
    "preset": (HEAD.replace("small", "@smal"), "base.preset: unknown preset 'smal' (did you mean 'small'?)"),
    "kind": (
        arm("{block.norm_placement: @pots}"),
        "arms.x.block.norm_placement: unknown kind 'pots' (did you mean 'post'?)",
    ),
    "a map for a source": (HEAD + "data: {source: @{a: 1}}\n", "data.source: unknown source"),
    "source": (HEAD + "data: {source: @stdlb}\n", "data.source: unknown source 'stdlb' (did you mean 'stdlib'?)"),
    "tokenizer kind": (
        HEAD + "data: {source: stdlib, tokenizer: @bpee}\n",
        "unknown kind 'bpee' (did you mean 'bpe'?)",
    ),
    "block of a pattern": (arm("{pattern: @[blok]}"), "arms.x.pattern: unknown block 'blok'"),
    # models that cannot be built
    "kv heads do not divide heads": (arm("{block.mixer.kv_heads: @3}"), "3 kv heads do not divide 4 heads"),
    "heads do not divide d_model": (arm("{block.mixer.heads: @5}"), "5 heads do not divide d_model 64"),
    "nor does the d_model of an arm": (arm("{d_model: @30}"), "arms.x.d_model: block.mixer.heads: 4 heads do not"),
    "nor that of a scale": (
        HEAD + "scales: {cpu: {base: {d_model: @30}}}\n",
        "scales.cpu.base.d_model: block.mixer.heads: 4 heads do not divide d_model 30",
    ),
    "odd RoPE": (
        arm("{block.mixer.head_dim: @15}"),
        "RoPE rotates pairs: 15 of a head's 15 features cannot be rotated",
    ),
    "width": (arm("{block.ffn.d_ff: @4y}"), "must be a positive whole number or a ratio to d_model"),
    # arms that compare nothing
    "the base again": (arm("{block.norm_placement: pre}").replace("  x:", "  @x:"), "is identical to the base"),
    "the base, spelt otherwise": (arm("{block.ffn.d_ff: 256}").replace("  x:", "  @x:"), "is identical to the base"),
    "no edit": (arm("{}").replace("  x:", "  @x:"), "arms.x: is identical to the base"),
    "an arm twice": (
        arm("{block: {norm_placement: {kind: post}}}").replace("  x:", "  @x:"),
        "is identical to arm post",
    ),
    "no arms": (HEAD.replace("\n  post: {block.norm_placement: post}", " @{}"), "arms: needs at least one arm"),
    "named like the baseline": (HEAD.replace("  post:", "  @pre:"), "arms.pre: 'pre' is the name of the baseline"),
    "a name for no file": (HEAD.replace("  post:", "  @../post:"), "arms.../post: a name must be letters, digits"),
    "a name for no page": (HEAD.replace("  post:", "  @<b>post</b>:"), "a name must be letters, digits"),
    "edited twice": (
        arm("{block.norm: layernorm, block: {@norm: rmsnorm}}"),
        "arms.x.block.norm: given twice (also as arms.x.block.norm",
    ),
    # what every arm shares
    "seeds of an arm": (arm("{@seeds: 5}"), "arms.x.seeds: every arm has the same seeds"),
    "budget of an arm": (arm("{@budget.flops: 5}"), "arms.x.budget.flops: every arm has the same budget"),
    "context of an arm": (arm("{@train.context: 5}"), "losses at different contexts are not comparable"),
    "base in an arm": (arm("{@base.d_model: 32}"), "paths are relative to the base: write d_model"),
    # grids
    "empty axis": (HEAD + "grid: {train.lr: @[]}\n", "grid.train.lr: needs at least one"),
    "axis without a list": (HEAD + "grid: {train.lr: @3e-3}\n", "grid.train.lr: must be a list, not 0.003"),
    "text of an arm": (arm("{@data.source: files}"), "every arm reads the same text: only data.tokenizer may differ"),
    "tokenizer of an arm": (arm("{@data.tokenizer.vocab: 300}"), "unknown key"),
    "tuned tokenizer": (
        HEAD + "tune: {space: {@data.tokenizer.vocab_size: [300, 400]}}\n",
        "losses under different tokenizers are not comparable",
    ),
    "axis of the data": (
        HEAD + "grid: {@data.source: [stdlib]}\n",
        "every arm reads the same text: only data.tokenizer may differ",
    ),
    "unknown axis": (HEAD + "grid: {train.lrr: [@1]}\n", "grid.train.lrr.0: unknown key (did you mean 'lr'?)"),
    "a value twice": (HEAD + "grid: {train.lr: [1e-3, @0.001]}\n", "grid.train.lr.1: is identical to 0.001"),
    "a value spelt twice": (HEAD + "grid: {block.ffn.d_ff: [4x, @256]}\n", "grid.block.ffn.d_ff.1: is identical to 4x"),
    "an arm's own setting": (
        HEAD.replace("{block.norm_p", "{@block.norm_p") + "grid: {block.norm_placement: [double]}\n",
        "arms.post.block.norm_placement: the grid also edits block.norm_placement",
    ),
    "a cell that cannot be": (
        HEAD + "grid: {block.mixer.kv_heads: [2, @3]}\n",
        "grid.block.mixer.kv_heads.1: 3 kv heads do not divide 4 heads",
    ),
}

CASES |= {
    # tuning, ladders and rounds of seeds
    "tuned path": (tune("{space: {@train.lrr: [1e-3, 2e-3]}}"), "space.train.lrr: unknown key (did you mean 'lr'?)"),
    "tuned twice": (tune("{space: {train.lr: @[1e-3, 0.001]}}"), "tune.space.train.lr: a value is given twice: 0.001"),
    "tuned list": (
        tune("{space: {train.betas: [@[0.9, 0.95], 3]}}"),
        "betas.0: must be text or a whole number or a number or true or false, not [0.9, 0.95]",
    ),
    "tuned vocabulary": (tune("{space: {@vocab_size: [300, 400]}}"), "the data determine the vocabulary size"),
    "tuned start": (tune("{space: {@start.fraction: [0.1, 0.2]}}"), "start cannot be tuned"),
    "step of a logarithm": (tune("{space: {train.lr: {log: [1, 2], @step: 3}}}"), "train.lr.step: unknown key"),
    "step of nothing": (
        tune("{space: {train.lr: {range: [1, 2], step: @0}}}"),
        "train.lr.step: must be greater than 0, not 0",
    ),
    "trials of a grid": (
        tune("@{space: {train.lr: [1, 2]}, trials: 3}"),
        "tune: trials does not apply here: without a range in space, every combination is tried",
    ),
    "extended range": (
        tune("@{space: {train.lr: {log: [1, 2]}}, extend: 1}"),
        "tune: extend does not apply here: with a range in space, values are sampled",
    ),
    "seeds of Python": (HEAD + "seeds: @null\n", "or auto, not null"),
    "start of what": (arm("{start: {fraction: @0.1}}"), "needs an arm or a checkpoint to start from"),
    "tuned value": (tune("{space: {train.lr: [1e-3, @-1]}}"), "must be greater than 0, not -1"),
    "tuned scalar": (tune("{space: {train.lr: @1e-3}}"), "train.lr: must be a list of values, or a map with one of"),
    "empty range": (tune("{space: {train.lr: {log: @[1, 1e-3]}}}"), "log: the range is empty: 1 is not below 0.001"),
    "misspelt range": (
        tune("{space: {train.lr: @{lgo: [1e-3, 1e-2]}}}"),
        "tune.space.train.lr: unknown kind of axis lgo (did you mean 'log'?)",
    ),
    "unknown range": (tune("{space: {train.lr: {uniform: [@0, 1]}}}"), "train.lr.uniform.0: must be a number"),
    "no space": (tune("{space: @{}}"), "tune.space: needs at least one"),
    "tuned context": (tune("{space: {@train.context: [64]}}"), "losses at different contexts are not comparable"),
    "tuned by an arm": (
        tune("{space: {block.norm_placement: [pre, post]}}").replace("{block.norm_p", "{@block.norm_p", 1),
        "arms.post.block.norm_placement: tuning sets block.norm_placement for every arm",
    ),
    "way of tuning": (HEAD + "tune: @of\n", "tune: unknown way of tuning 'of' (did you mean 'off'?)"),
    "no way of tuning": (HEAD + "tune: @3\n", "tune: must be auto, carried, off, or a map"),
    "carried with seeds": (HEAD + "tune: {carried: LOG.md, @seeds: 3}\n", "tune.seeds: unknown key"),
    "rate of an arm": (
        arm("{@train.lr: 1e-3}"),
        "arms.x.train.lr: tuning sets train.lr for every arm: "
        "set `tune: off` if learning rates are part of the question, `tune: carried` if they were tuned earlier",
    ),
    "rate of a grid": (HEAD + "grid: {train.lr: [@1e-3, 1e-2]}\n", "tuning sets train.lr for every arm"),
    "tune key": (tune("{space: {train.lr: [1e-3]}, @fractoin: 1}"), "did you mean 'fraction'?"),
    "size": (ladder("{base.d_model: 15, base.block.mixer.heads: @2}"), "heads: 2 heads do not divide d_model 15"),
    "size key": (ladder("{@base.d_modle: 16}"), "ladder.s.base.d_modle: unknown key (did you mean 'd_model'?)"),
    "size section": (ladder("{@seeds: 3}"), "ladder.s.seeds: a rung may edit only base, budget and train"),
    "size kind": (
        ladder("@3"),
        "ladder.s: must be a map of edits, or a share of the budget between 0 and 1, not 3",
    ),
    "whole length": (
        ladder("@1.0"),
        "ladder.s: must be a map of edits, or a share of the budget between 0 and 1, not 1.0",
    ),
    "share last": (
        HEAD + "ladder: {s: {base.d_model: 16}, l: @0.5}\n",
        "ladder.l: arms are compared at the last rung, which must have the whole budget: end with, e.g., full: {}",
    ),
    "size and an arm": (
        ladder("{base.block.norm_placement: post}").replace("  post:", "  @post:"),
        "arms.post: is identical to the base (at rung s)",
    ),
    "scale of another machine": (
        HEAD + "scales: {gpu: {train.lr: @fast}}\n",
        "scales.gpu.train.lr: must be a number, not 'fast'",
    ),
    "size of another scale": (
        HEAD + "scales:\n  gpu:\n    ladder: {s: {base.d_model: 16}, l: {@base.d_modle: 32}}\n",
        "scales.gpu.ladder.l.base.d_modle: unknown key",
    ),
    "one size": (HEAD + "ladder:\n  @s: {base.d_model: 16}\n", "ladder: a ladder needs two or more rungs"),
    "ladder kind": (HEAD + "ladder: @3\n", "ladder: must be a map or null, not 3"),
    "examples of no machine": (
        HEAD + "data: {source: needle, validation_examples: @1000000000000000}\n",
        "data.validation_examples: must be less than or equal to 1000000, not 1000000000000000",
    ),
    "dotted ladder": (
        HEAD + "@ladder.s.base.d_model: 16\n",
        "must be a map of rungs in the file or in a scale; --set can only remove it (ladder=null)",
    ),
    "start of nothing": (arm("{start: {arm: @prre}}"), "arms.x.start.arm: unknown arm 'prre' (did you mean 'pre'?)"),
    "start key": (arm("{start: {arm: pre, @poling: mean}}"), "did you mean 'pooling'?"),
    "start of a chain": (
        arm("{start: {arm: pre}}").replace("budget:", "  y: {train.batch: 4, start: {arm: @x}}\ntune: off\nbudget:"),
        "arms.y.start.arm: cannot start from x, which itself starts from",
    ),
    "start in another shape": (
        arm("@{block.ffn.d_ff: 8, start: {arm: pre}}"),
        "arms.x: cannot start from pre: blocks.0.ffn.gate.weight has the shape",
    ),
    "start of a width": (
        arm("@{d_model: 96, start: {arm: pre, growth: width}}"),
        "arms.x: cannot start from pre: layers.0.mixer.head_dim: must stay 16, not 24: "
        "growth: width changes only d_model",
    ),
    "seeds word": (HEAD + "seeds: @autoo\n", "or auto, not 'autoo'"),
    "seeds cap": (HEAD + "seeds: @{start: 5, cap: 3}\n", "seeds: cap (3) is below start (5)"),
    "seeds key": (HEAD + "seeds: {@star: 5}\n", "seeds.star: unknown key (did you mean 'start'?)"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_study_says_where_and_why(case: str, tmp_path: Path) -> None:
    marked, reason = CASES[case]
    text, place = place_of(marked)
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="cpu")
    lines = str(caught.value).splitlines()
    assert [line for line in lines if line.startswith(f"{path}:{place}: ") and reason in line], lines
    assert len(lines) <= 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.lr", "--set train.lr: expected key=value, such as train.lr=1e-3"),
        ("=3", "--set =3: expected key=value"),
        ("trian.lr=3", "--set trian.lr=3: trian.lr: unknown key (did you mean 'train'?)"),
        ("train.lrr=3", "--set train.lrr=3: train.lrr: unknown key (did you mean 'lr'?)"),
        ("train.lr=fast", "--set train.lr=fast: train.lr: must be a number, not 'fast'"),
        ("train.lr=[1", "--set train.lr=[1: train.lr: not YAML: expected ',' or ']'"),
        ("base.d_model=30", "--set base.d_model=30: base.d_model: block.mixer.heads: 4 heads do not divide"),
        (
            "arms.pots.d_model=32",
            "--set arms.pots.d_model=32: arms.pots.d_model: unknown arm (did you mean 'post'?)",
        ),
        ("arms.post.block.norm_placement=pre", "arms.post: is identical to the base"),
        ("scales.cpu.seeds=3", "--set scales.cpu.seeds=3: scales.cpu.seeds: unknown key"),
        ("measure.contexts=[0]", "measure.contexts.0: must be greater than 0, not 0"),
        ("measure.contexts=[]", "measure.contexts: needs at least one"),
    ],
)
def test_a_wrong_setting_on_the_command_line_is_quoted(setting: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="cpu", sets=[setting])
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("value", ["99999999999999999999", "-99999999999999999999", "1e20", "9" * 400, str(2**63)])
@pytest.mark.parametrize(
    "setting", ["train.batch", "budget.tokens", "base.d_model", "seeds", "train.context", "data.validation_tokens"]
)
def test_whole_numbers_have_64_bits(setting: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"{HEAD}data: {{source: stdlib}}\n")
    with pytest.raises(StudyError) as caught:
        load_study(path, "cpu", [f"{setting}={value}"])
    (line,) = {str(problem) for problem in caught.value.problems}
    assert f"{setting}: " in line and ("must be" in line or "more than" in line), line


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("trian.lr=3", "unknown_key"),
        ("base.d_modl=3", "unknown_key"),
        ("arms.post.block.mixer.kv_headss=3", "unknown_key"),
        ("base.block.ffn={kind: relu, experts: 3}", "unknown_key"),
        ("scales.cpu.seeds=3", "unknown_key"),
        ("train.optimizer=adamm", "unknown_choice"),
        ("train.schedule=cosin", "unknown_choice"),
        ("arms.post.block.norm=layernrom", "unknown_choice"),
        ("train.lr=fast", "illegal"),
        ("base.d_model=30", "illegal"),
    ],
)
def test_a_program_is_told_the_kind_of_a_problem(setting: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="cpu", sets=[setting])
    assert [problem.kind for problem in caught.value.problems] == [kind]


UNSIZED = HEAD.replace("budget: {flops: 1e12}\n", "").replace("d_model: 64, ", "").replace("preset: small, ", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seeds: @three\n", "seeds: must be a number of seeds"),
        ("budget: {@epochs: 3}\n", "budget.epochs: unknown key"),
        ("data: {source: @file}\n", "data.source: unknown source 'file' (did you mean 'files'?)"),
        ("tune: @maybe\n", "tune: unknown way of tuning"),
    ],
)
def test_what_smoke_is_laid_over_is_checked(text: str, reason: str, tmp_path: Path) -> None:
    """At the user's own words: the command that a smoke run suggests would end there."""
    path = tmp_path / "x.yaml"
    text, place = place_of(UNSIZED + text)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="smoke")
    assert str(caught.value).startswith(f"{path}:{place}: {reason}"), str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("data", ["t.txt", "wikitext", "[a.txt]", "3"])
def test_data_that_a_scale_has_too_is_wrong_in_the_file(data: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{UNSIZED}data: {data}\n", encoding="utf-8")
    for scale in ("smoke", "cpu"):
        with pytest.raises(StudyError) as caught:
            load_study(path, scale=scale)
        assert str(caught.value).startswith(f"{path}:6:7: data")


@pytest.mark.parametrize("scale", ["cpu", "huge"])
@pytest.mark.parametrize(
    ("file", "edits", "lacks"),
    [
        ("", "seeds: 3", "base.preset and budget"),
        ("", "budget: {tokens: 1e6}", "base.preset"),
        ("", "base.preset: small", "budget"),
        ("", "base: {d_model: 64}", "base.preset and budget"),
        ("budget: {tokens_per_parameter: 20}\n", "seeds: 3", "base.preset"),
    ],
)
def test_a_scale_of_the_study_s_own_says_what_it_lacks(
    scale: str, file: str, edits: str, lacks: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{UNSIZED}{file}scales:\n  huge: {{{edits}}}\n", encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale=scale)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}:{7 + bool(file)}:3: scales.huge: needs {lacks}, which only shipped scales (smoke,")


@pytest.mark.parametrize("scale", ["smoke", "cpu", "cpuu"])
def test_a_misspelt_scale_is_named(scale: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(UNSIZED + "scales: {cpuu: {seeds: 3}}\n", encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale=scale)
    reason = "scales.cpuu: unknown scale (did you mean 'cpu'?); a new scale needs a budget"
    assert str(caught.value).splitlines()[-1] == f"{path}:6:10: {reason}"
    assert len(caught.value.problems) == 1 + (scale == "cpuu")


def test_an_unknown_scale_is_placed_at_the_scales(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + "scales: {smoke: {}}\n", encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="smokey")
    assert str(caught.value) == f"{path}:7:1: scales: unknown scale 'smokey' (did you mean 'smoke'?)"


def test_a_cell_names_its_arm(tmp_path: Path) -> None:
    """6 heads of an arm are divided by 3 kv heads, and not by 4; the base has 8 heads, and neither fits both."""
    text = HEAD.replace("d_model: 64", "d_model: 48, block.mixer.heads: 8")
    text = text.replace("{block.norm_placement: post}", "{block.mixer.heads: 6}")
    path = tmp_path / "x.yaml"
    path.write_text(text + "grid: {block.mixer.kv_heads: [1, 4]}\n", encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="cpu")
    reason = "grid.block.mixer.kv_heads.1: 4 kv heads do not divide 6 heads (in arm post)"
    assert str(caught.value) == f"{path}:7:34: {reason}"


def test_all_problems_come_in_one_pass_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(arm("{block.norm: off}").replace("4x", "4y") + "seeds: two\ntrain: {lr: fast}\n", encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="cpu")
    assert [problem.place.line for problem in caught.value.problems] == [3, 8, 9]
    path.write_text(arm("{block.norm: off}").replace("placement: post", "placement: pots"), encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="cpu")
    assert [problem.path for problem in caught.value.problems] == [
        "arms.post.block.norm_placement",
        "arms.x.block.norm",
    ]


PLANNED = {
    "less than one step of an arm that starts": (
        arm("{start: {arm: pre, fraction: @1e-6}}") + "tune: off\n",
        "arms.x.start.fraction: 1e+06 flops are less than one step of arm x",
    ),
    "width transfer": (
        HEAD.replace("64,", "64, tie_embeddings: false,") + "train: {width_transfer.base_width: @32}\n",
        "the head dimension must not grow with d_model: set block.mixer.head_dim",
    ),
    "depth transfer": (
        HEAD + "train: {depth_transfer.base_layers: @1}\n",
        "initial values must not depend on the depth: set init.output to plain",
    ),
    "less than one step": (HEAD.replace("1e12", "@1e6"), "budget.flops: 1e+06 flops are less than one step of arm pre"),
    "more steps than there can be": (
        HEAD.replace("1e12", "@1e300"),
        "budget.flops: 1e+300 flops are more than a trillion steps of arm pre",
    ),
    "less than one step of tokens": (HEAD.replace("flops: 1e12", "tokens: @100"), "budget.tokens: 100 tokens are less"),
    "context past the validation": (
        HEAD + "data: {source: stdlib, validation_tokens: 100}\ntrain: {context: @128}\n",
        "train.context: 128 tokens are more than data.validation_tokens (100)",
    ),
    "vocabulary": (HEAD.replace("d_model: 64", "vocab_size: @200"), "base.vocab_size: the tokenizer has 257 tokens"),
    "no task": (HEAD + "evals: {tasks: @[]}\n", "evals.tasks: is empty, and no other evaluation is requested"),
    "task folder": (HEAD + "evals: {include: [@nowhere]}\n", "evals.include.0: there is no folder"),
    "task": (HEAD + "evals: {tasks: [heldout_text, @heldout_pair]}\n", "did you mean 'heldout_pairs'?"),
}


@pytest.mark.parametrize("case", PLANNED)
def test_what_only_the_plan_can_find_is_placed_too(case: str, tmp_path: Path) -> None:
    marked, reason = PLANNED[case]
    text, place = place_of(marked)
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    study = load_study(path, scale="cpu")
    with pytest.raises(StudyError) as caught:
        make_plan(study, identify=lambda _: DataIdentity("0" * 32, 257, ""))
    assert str(caught.value).startswith(f"{path}:{place}: ")
    assert reason in str(caught.value)


def test_data_that_cannot_be_read_is_an_error_of_the_study(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + "data: {source: files, paths: absent/*.txt}\n", encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        make_plan(load_study(path, scale="cpu"))
    assert str(caught.value).startswith(f"{path}:7:7: data: no file matches 'absent/*.txt'")


@pytest.mark.parametrize("setting", ["keys: 4611686018427387904", "values: 9223372036854775807"])
def test_a_synthetic_vocabulary_that_no_machine_holds_is_an_error_of_the_study(setting: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{HEAD}data: {{source: needle, {setting}}}\n", encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        make_plan(load_study(path, scale="cpu"))
    assert str(caught.value).startswith(f"{path}:7:7: data: vocab_size: must be less than or equal to ")
