"""The compatibility matrix: what it says can be combined can, what it says cannot is refused for that reason."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

import zoo
from tests.zoo.worked_out import legal_pairs, matrix_pairs, rows_and_opening
from zoo.compatibility import matrix
from zoo.conformance.combinations import given_to, random_tokens
from zoo.mixers.attention import Attention
from zoo.settings.axis import variants

RULES = [
    (
        r"((post|deepnorm|normed|ngpt) normalises|gated gates) the stream where two branches .+ would meet it",
        {"norm_placement", "topology"},
    ),
    (r"not a setting of \w+, but of .+", {"norm", "norm_placement", "mixer", "mixer.position", "ffn"}),
    (r'must be true or false, not \["q", "v"\]', {"mixer", "mixer.bias"}),
    (r"needs \d+ factors, one per pair of features, not 3", {"mixer.position.scaling"}),
    (r"needs gain: true", {"norm.unit_offset"}),
    (r"cosine attention .+", {"mixer"}),
    (r"\w+ needs mixer and ffn side by side, and there is no \w+", {"topology"}),
    (r"there is no mixer either: a block has one of them at least", {"ffn"}),
    (r"(retention|lightning) keeps a state and has no scores to which \w+ could add", {"mixer", "mixer.position"}),
    (
        r"must be a kind, or a map with the key 'kind'",
        {"mixer.position.layout", "mixer.position.fraction", "mixer.position.scaling"},
    ),
    (r"transformer_xl needs the queries, which \w+ does not provide: use attention", {"mixer", "mixer.position"}),
    (
        r"transformer_xl reads queries as they are projected, for every distance",
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
    (r"flash sums up what is before a chunk and has no scores to which \w+ could add", {"mixer", "mixer.position"}),
    (r"\d+ heads of \d+ features are not d_model \d+", {"mixer.head_dim"}),
    (r"positions are applied to heads, and full is the width before the split", {"mixer.qk_norm_over"}),
    (r"\w+ of a key is no multiple of it by one number that could be cached: rmsnorm is", {"mixer.qk_norm"}),
    (r"norms of keys that an indexer chooses are not published: leave it out", {"mixer.qk_norm"}),
    (r"\w+ says which keys are seen: leave the mixer's window out", {"mixer.sparsity"}),
    (r"\w+ gives what it reads to the power of [36]: it needs a norm", {"norm", "norm_placement", "mixer"}),
    (r"forgets what came before a token: it has no meaning for later tokens", {"visible", "encoder"}),
    (r"forget gates are cached beside keys, and those are a layer below's \(reuse_kv\)", {"pattern"}),
    (r"keys are the values, and \w+ treats values in another way", {"mixer.keys_as_values", "pattern"}),
    (r"there is no matrix of values to have one \(keys_as_values\): .+", {"mixer.keys_as_values"}),
    (r"the values are a layer below's \(reuse_kv\)", {"pattern"}),
    (r"a norm of queries undoes what their weights start with \(qk_norm\)", {"mixer.scale_in"}),
    (r"not supported with xielu: the threshold removes negative values, where α_n applies", {"ffn.sparsity"}),
    (r"\w+ has no heads to take the number from: set it", {"mixer", "encoder"}),
    (r"there is no \w+ for it to be before: before: \[\w+\]", {"canon", "gated_norm"}),
    (r"layer \d+ is '\w+' and cannot share weights with '\w+'", {"sharing"}),
    (r"\w+ reads from left to right: it cannot see later tokens", {"visible", "encoder"}),
    (r"reaches back only: it cannot see later tokens", {"visible", "encoder"}),
    (r"xpos needs causal attention: scores would grow with the distance to later tokens", {"visible", "encoder"}),
    (r"what an indexer imitates of weights that a sink takes a share of is not published: .+", {"mixer.sinks"}),
    (r"needs causal attention: m·j is a distance to earlier tokens only", {"visible", "encoder"}),
    (r"cannot be combined with visible: all, which makes the model itself an encoder", {"visible", "encoder"}),
    (r"\w+ has no place for attention to an encoder", {"topology", "encoder"}),
    (r"not supported with an encoder", {"token_types", "encoder"}),
    (
        r"(nsa scores compressed blocks|moba scores means of blocks), which are at no place for which \w+ could add",
        {"mixer", "mixer.position"},
    ),
    (r"linformer scores mixtures of keys, which are at no place for which \w+ could add", {"mixer", "mixer.position"}),
    (r"linformer mixes keys of the whole text: it cannot hide later tokens", {"visible"}),
    (r"expert_choice_moe needs visible: all: experts choose among all tokens of a text", {"visible", "encoder"}),
    (r"nGPT keeps the stream on the unit sphere, which a sum of two streams leaves", {"first_stream"}),
    (r"layer \d+ has no value heads to add to", {"value_embeddings"}),
    (r"layers \d+ and \d+ share a table but have \d+ heads of \d+ features and .+", {"value_embeddings"}),
    (r"no layer below has keys and values of its own with the same heads, positions and window", {"pattern"}),
    (r"keys and values are of a layer below \(reuse_kv\), which has settings of its own", {"pattern"}),
    (r"linformer mixes keys and values of its own", {"pattern"}),
    (r"multi_token scores keys of its own, next to one another", {"pattern", "mixer.sparsity"}),
    (r"is beside the residual of a mixer alone: it needs a mixer, and topology serial", {"laurel"}),
    (r"adds to a stream of \(B, T, D\) that nothing normalises right after: \w+ has none", {"laurel"}),
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


def test_the_document_says_what_the_pairs_say() -> None:
    document = matrix.document()
    told = {(a, b, c, d): reason for reason, rows in document["conflicts"].items() for a, b, c, d in rows}
    of_pairs = {place: reason for place, reason in told.items() if place[2] != "cache"}
    assert of_pairs == {(a.axis, a.name, b.axis, b.name): why for a, b, why in matrix_pairs() if why is not None}
    caches = document["axes"].pop("cache")
    assert caches == ["int4", "int8", "paged", "plain", "sink"]
    assert document["axes"] == {axis: [option.name for option in of] for axis, of in matrix.axes().items()}
    refused = {place[1] for place in told if place[2:] == ("cache", "plain")}
    assert {"all"} <= refused and not refused & {"causal", "attention", "mamba2"}


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
