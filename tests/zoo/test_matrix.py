"""The compatibility matrix: what it says can be combined can, what it says cannot is refused for that reason."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

import zoo
from tests.zoo.worked_out import legal_pairs, matrix_pairs, rows_and_opening
from zoo.conformance import matrix
from zoo.conformance.checking import options_of
from zoo.conformance.combinations import choices, covering_kind, given_to, random_tokens
from zoo.mixers.attention import Attention
from zoo.settings.axis import variants

RULES = [
    (
        r"parallel_two_norms needs an additive residual; "
        "((post|deepnorm|normed|ngpt) normalises|gated gates) the stream",
        {"norm_placement", "topology"},
    ),
    (r"not a setting of \w+, but of .+", {"norm", "norm_placement", "mixer", "mixer.position", "ffn"}),
    (r'must be true or false, not \["q", "v"\]', {"mixer", "mixer.bias"}),
    (r"needs \d+ factors, one per pair of features, not 3", {"mixer.position.scaling"}),
    (r"needs gain: true", {"norm.unit_offset"}),
    (r"cosine attention .+", {"mixer"}),
    (r"\w+ needs a mixer and an FFN; the block has no \w+", {"topology"}),
    (r"a block needs a mixer or an FFN", {"ffn"}),
    (r"\w+ adds to attention scores, which (retention|lightning) does not have", {"mixer", "mixer.position"}),
    (
        r"must be a kind, or a map with the key 'kind'",
        {"mixer.position.layout", "mixer.position.fraction", "mixer.position.scaling"},
    ),
    (r"transformer_xl needs the queries, which \w+ does not provide: use attention", {"mixer", "mixer.position"}),
    (
        r"cannot be combined with transformer_xl, which reads the projected queries",
        {"mixer.sparsity", "mixer.temperature", "mixer.qk_norm_after_position"},
    ),
    (
        r".+ needs (every token in .+|rows without padding|contiguous positions|the same positions in every row)",
        {"chunks", "depth_routing", "sharing"},
    ),
    (
        r".+ needs (positions given by the order of tokens|keys or values of other layers)",
        {"chunks", "depth_routing", "sharing"},
    ),
    (r".+ needs a causal model without an encoder", {"visible", "encoder"}),
    (r".+ needs (layers that write a stream|a single stream) of \(B, T, D\)", {"norm_placement", "altup"}),
    (r"block\.norm_placement \(attention_residuals\) needs (one stack of layers|.+)", {"norm_placement"}),
    (r"sharing\.injection needs one stack of layers", {"chunks"}),
    (r"transformer_xl needs causal attention: it projects distances to earlier tokens only", {"visible", "encoder"}),
    (r"\w+ adds to attention scores, which flash has only within a chunk", {"mixer", "mixer.position"}),
    (r"must be d_model / heads \(\d+\), not \d+", {"mixer.head_dim"}),
    (
        r"full cannot be combined with qk_norm_after_position: positions are applied to single heads",
        {"mixer.qk_norm_over"},
    ),
    (r"must be rmsnorm, whose scale per key is a single cached number, not \w+", {"mixer.qk_norm"}),
    (r"qk_norm with an indexer is not published: leave it out", {"mixer.qk_norm"}),
    (r"sparsity \w+ determines which keys are visible: leave window out", {"mixer.sparsity"}),
    (
        r"the output of \w+ grows with power [36] of its input: it needs a norm before it",
        {"norm", "norm_placement", "mixer"},
    ),
    (r"forget gates need causal attention", {"visible", "encoder"}),
    (r"cannot be combined with reuse_kv: forget gates are cached with the layer's own keys", {"pattern"}),
    (r"cannot be combined with \w+: there is no value projection", {"mixer.keys_as_values", "pattern"}),
    (r"with keys_as_values there is no value projection: .+", {"mixer.keys_as_values"}),
    (r"cannot be combined with reuse_kv: the values are a lower layer's", {"pattern"}),
    (r"must be scores with qk_norm, which undoes the initial scale of the query weights", {"mixer.scale_in"}),
    (r"not supported with xielu: the threshold removes negative values, where α_n applies", {"ffn.sparsity"}),
    (r"must be set: \w+ has no number of heads to copy", {"mixer", "encoder"}),
    (r"the block has no \w+; use before: \[\w+\]", {"canon", "gated_norm"}),
    (r"layer \d+ is '\w+' and cannot share weights with '\w+'", {"sharing"}),
    (r"(\w+ )?is causal: it cannot be used in an encoder or with visible: prefix", {"visible", "encoder"}),
    (r"xpos needs causal attention: scores would grow with the distance to later tokens", {"visible", "encoder"}),
    (r"sinks with a trained indexer are not published: set index_loss: 0", {"mixer.sinks"}),
    (r"needs causal attention: m·j is a distance to earlier tokens only", {"visible", "encoder"}),
    (r"cannot be combined with visible: all, which makes the model itself an encoder", {"visible", "encoder"}),
    (r"must be serial for cross-attention to an encoder, not \w+", {"topology", "encoder"}),
    (r"not supported with an encoder", {"token_types", "encoder"}),
    (
        r"\w+ cannot add to (nsa's scores of compressed blocks|moba's scores of block means), "
        "which have no position",
        {"mixer", "mixer.position"},
    ),
    (r"\w+ cannot add to linformer's scores of mixed keys, which have no position", {"mixer", "mixer.position"}),
    (r"linformer needs visible: all, since its mixtures of keys include later tokens", {"visible"}),
    (r"expert_choice_moe needs visible: all: experts choose among all tokens of a text", {"visible", "encoder"}),
    (r"nGPT keeps the stream on the unit sphere, which a sum of two streams leaves", {"first_stream"}),
    (r"nGPT keeps the stream on the unit sphere, which a scaled stream leaves", {"layer_gains"}),
    (r"layer \d+ has no value heads to add to", {"value_embeddings"}),
    (r"layers \d+ and \d+ share a table but have \d+ heads of \d+ features and .+", {"value_embeddings"}),
    (
        r"no lower layer has its own keys and values with the same kind, heads, positions, window and sparsity",
        {"pattern"},
    ),
    (r"with reuse_kv, keys and values are a lower layer's, whose settings apply", {"pattern"}),
    (r"cannot be combined with linformer, which mixes its own keys and values", {"pattern"}),
    (
        r"cannot be combined with multi_token, which needs consecutive keys of its own",
        {"pattern", "mixer.sparsity"},
    ),
    (r"needs a mixer and topology serial", {"laurel"}),
    (r"needs an additive residual on a stream of \(B, T, D\), not \w+", {"laurel"}),
    (r"NTK-aware scaling needs more than one pair of features, not 2 features", {"mixer.position.scaling"}),
]
"""Every reason why two choices may not meet, and the axes that at least one of each such pair is on, or edits."""


def test_every_choice_can_be_built_by_itself() -> None:
    for options in matrix.axes().values():
        for option in options:
            assert matrix.conflict(option) is None, option


def test_two_choices_are_refused_for_known_reasons_only() -> None:
    for a, b, reason in matrix_pairs():
        if reason is not None:
            said = [axes for pattern, axes in RULES if re.search(f": {pattern}$", reason)]
            assert any(axes & {a.axis, b.axis, *a.edits, *b.edits} for axes in said), (str(a), str(b), reason)


def test_what_is_refused_raises_that_reason() -> None:
    refused = [(a, b, reason) for a, b, reason in matrix_pairs() if reason is not None]
    assert refused
    for a, b, reason in refused:
        with pytest.raises(zoo.SpecError) as caught:
            matrix.combine((b, a))
        assert str(caught.value) == reason


@pytest.mark.slow
def test_every_two_choices_that_are_not_refused_build_and_run() -> None:
    for a, b, reason in matrix_pairs():
        if reason is None:
            spec = matrix.combine((a, b))
            with torch.no_grad():
                logits = zoo.build(spec)(random_tokens(spec, 1, 7), **given_to(spec, 1, 7))
            assert logits.isfinite().all(), (str(a), str(b))


def test_every_two_choices_that_can_be_combined_meet_in_the_conformance_suite() -> None:
    """And every choice is in it, the defaults of settings too. Each row of it is built by the suite."""
    met = {frozenset(pair) for row in rows_and_opening()[0] for pair in itertools.combinations(row.values(), 2)}
    assert legal_pairs() <= met
    allowed = {frozenset((a, b)) for a, b, reason in matrix_pairs() if reason is None}
    assert allowed <= met


@pytest.mark.slow
def test_every_choice_meets_a_kind_in_hardly_more_rows_than_the_longest_axis_needs() -> None:
    options = options_of("parallel")
    rows = covering_kind(options)
    axis = options[0].axis
    others = {other for name, of in choices().items() if name != axis for other in of}
    possible = {other for other in others if any(matrix.conflict(option, other) is None for option in options)}
    assert {other for row in rows if row[axis] in options for other in row.values()} - {*options} == possible
    assert {row[axis] for row in rows} == {*options}
    longest = max(sum(other.axis == name for other in possible) for name in choices())
    assert longest <= len(rows) < 1.3 * longest


def test_the_axes_are_those_of_the_zoo() -> None:
    axes = matrix.axes()
    for axis, package in {
        "norm": "norms", "norm_placement": "residuals", "mixer": "mixers", "mixer.position": "positions",
        "mixer.position.scaling": "positions.scalings", "mixer.sparsity": "sparsities",
        "ffn": "ffns",
    }.items():  # fmt: skip
        kinds = [option.name.partition(" ")[0] for option in axes[axis]]
        assert list(dict.fromkeys(kinds)) == list(variants(f"zoo.{package}"))
    # Keys are reused from a layer below, so that it takes a pattern of layers to try it.
    settings = Attention.model_fields.keys() - {"kind", "heads", "reuse_kv"}
    assert {axis.split(".")[1] for axis in axes if axis.startswith("mixer.")} == settings
    assert {"topology", "final_norm", "tie_embeddings", "embedding_dim", "final_softcap", "pattern"} <= set(axes)


def test_edits_of_a_row_are_applied_whatever_their_order() -> None:
    axes = matrix.axes()
    window, mla = axes["mixer.window"][0], next(option for option in axes["mixer"] if option.name == "mla")
    assert matrix.combine((window, mla)) == matrix.combine((mla, window))
    assert matrix.combine((window, mla)).block.mixer.window == 5


def test_the_document_says_what_the_pairs_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "pairs", matrix_pairs)
    document = matrix.document()
    told = {(a, b, c, d): reason for reason, rows in document["conflicts"].items() for a, b, c, d in rows}
    of_pairs = {place: reason for place, reason in told.items() if place[2] != "cache"}
    assert of_pairs == {(a.axis, a.name, b.axis, b.name): why for a, b, why in matrix_pairs() if why is not None}
    caches = document["axes"].pop("cache")
    assert caches == ["int4", "int8", "paged", "plain", "sink"]
    assert document["axes"] == {axis: [option.name for option in of] for axis, of in matrix.axes().items()}
    refused = {place[1] for place in told if place[2:] == ("cache", "plain")}
    assert {"all"} <= refused and not refused & {"causal", "attention", "mamba2"}


@pytest.mark.slow
def test_a_cache_is_refused_where_a_model_refuses_it() -> None:
    kept = ("mixer", "mixer.window", "mixer.position", "mixer.sparsity", "canon", "pattern", "visible", "encoder")
    for option in itertools.chain(*(matrix.axes()[axis] for axis in kept)):  # what a cache holds depends on these
        with torch.device("meta"):
            model = zoo.build(matrix.combine([option]))
            for kind in variants("zoo.caches"):
                reason = matrix.unserved(option, kind)
                if reason is None:
                    model.new_cache(1, 16, kind=kind)
                else:
                    with pytest.raises(ValueError, match=re.escape(reason)):
                        model.new_cache(1, 16, kind=kind)
