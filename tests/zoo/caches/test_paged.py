"""Pages: who has how many, and that nobody's text depends on it."""

from __future__ import annotations

import pytest
import torch

import zoo
import zoo.decode
from zoo.caches.paged import Paged, PagedCache, beside, join
from zoo.caching.cache import Cache
from zoo.conformance.combinations import random_model, random_tokens

PAGE = Paged(page=4, pages=12)


def model_of() -> zoo.Decoder:
    return random_model(zoo.load("small", d_model=24, n_layers=2, vocab_size=40)).double()


def pages(cache: Cache) -> int:
    """Number of pages in use, which is the same in every layer."""
    counts = {sum(users > 0 for users in layer.pool.users) for layer in cache.layers if isinstance(layer, PagedCache)}
    (count,) = counts
    return count


def test_rows_have_the_pages_of_their_own_text() -> None:
    model = model_of()
    cache = model.new_cache(3, 40, kind=PAGE)
    assert (pages(cache), cache.nbytes) == (0, 0)
    model(random_tokens(model.spec, 3, 9), cache, torch.tensor([0, 5, 8]))  # of 9, 4 and 1 tokens
    assert pages(cache) == 3 + 1 + 1
    model(random_tokens(model.spec, 3, 1), cache)
    assert pages(cache) == 3 + 2 + 1
    per_page = 2 * 2 * 24 * 4 * 8
    assert cache.nbytes == 6 * per_page
    cache.reorder(torch.tensor([2, 0]))
    assert pages(cache) == 4
    cache.reorder(torch.tensor([], dtype=torch.long))
    assert cache.nbytes == 0


def test_rows_that_leave_change_nothing_for_those_that_stay() -> None:
    model = model_of()
    cache, tokens, pads = model.new_cache(3, 40, kind=PAGE), random_tokens(model.spec, 3, 18), [0, 5, 8]
    model(tokens[:, :9], cache, torch.tensor(pads))
    stay = torch.tensor([2, 1])
    cache.reorder(stay)
    after = model(tokens[stay, 9:], cache)
    for row, out in zip(stay.tolist(), after, strict=True):
        torch.testing.assert_close(out, model(tokens[row : row + 1, pads[row] :])[0, -9:], rtol=1e-9, atol=1e-9)


def test_rows_join_others_that_are_on_their_way() -> None:
    """A longer and a shorter prompt than those that are being read, and one that leaves before the last joins."""
    model = model_of()
    texts = [random_tokens(model.spec, 1, length, seed) for seed, length in enumerate((12, 16, 9))]
    cache = model.new_cache(1, 40, kind=PAGE)
    model(texts[0][:, :7], cache)
    longer = beside(cache, 1)
    model(texts[1][:, :11], longer)
    join(cache, longer)
    assert pages(cache) == 2 + 3
    out = model(torch.cat((texts[0][:, 7:10], texts[1][:, 11:14])), cache)
    for row, (text, start) in enumerate(((texts[0], 7), (texts[1], 11))):
        torch.testing.assert_close(out[row], model(text)[0, start : start + 3], rtol=1e-9, atol=1e-9)
    cache.reorder(torch.tensor([1]))
    shorter = beside(cache, 1)
    model(texts[2][:, :7], shorter)
    join(cache, shorter)
    out = model(torch.cat((texts[1][:, 14:], texts[2][:, 7:])), cache)
    for row, (text, start) in enumerate(((texts[1], 14), (texts[2], 7))):
        torch.testing.assert_close(out[row], model(text)[0, start:], rtol=1e-9, atol=1e-9)
    assert pages(cache) == 4 + 3


def test_rows_of_one_prompt_share_its_pages_until_they_write() -> None:
    model = model_of()
    cache, tokens = model.new_cache(1, 40, kind=PAGE), random_tokens(model.spec, 3, 12)
    prompt = tokens[:1, :10].expand(3, -1)
    model(prompt[:1], cache)
    cache.reorder(torch.tensor([0, 0, 0]))
    assert pages(cache) == 3
    out = model(tokens[:, 10:], cache)
    assert pages(cache) == 2 + 3
    torch.testing.assert_close(out, model(torch.cat((prompt, tokens[:, 10:]), dim=1))[:, 10:], rtol=1e-9, atol=1e-9)


def test_a_pool_that_is_used_up_is_an_error() -> None:
    model = model_of()
    with pytest.raises(ValueError, match="all 12 pages of the cache are in use"):
        model(random_tokens(model.spec, 5, 12), model.new_cache(5, 40, kind=PAGE))


def test_a_window_cannot_be_joined() -> None:
    model = random_model(zoo.load("small", d_model=24, n_layers=2, vocab_size=40, **{"block.mixer.window": 5}))
    with pytest.raises(ValueError, match="further rows need a paged cache in every layer"):
        beside(model.new_cache(1, 40, kind=PAGE), 1)


def test_beams_and_speculation_read_pages_as_they_read_the_plain_cache() -> None:
    model, prompts = model_of(), random_tokens(model_of().spec, 2, 6)
    pads = torch.tensor([0, 3])
    plain = zoo.decode.beam_search(model, prompts, 8, beams=3, left_pad=pads)
    paged = zoo.decode.beam_search(
        model, prompts, 8, beams=3, left_pad=pads, cache=model.new_cache(6, 14, kind=Paged(page=4))
    )
    assert torch.equal(plain.tokens, paged.tokens)
    found = zoo.decode.speculate(model, model, prompts, 12, cache=model.new_cache(2, 18, kind=Paged(page=4)))
    assert torch.equal(found.tokens, zoo.generate(model, prompts, 12))


def test_units_without_a_softmax_see_no_padding_in_pages() -> None:
    """Pages have no places for padding, so that what is read there is other text: it has to be masked."""
    spec = zoo.load("small", d_model=24, n_layers=2, vocab_size=40)
    model = random_model(spec.edit({"block.mixer": {"kind": "gau", "head_dim": 6, "length": 8}})).double()
    tokens, pads, cache = random_tokens(model.spec, 3, 12), [0, 5, 8], model.new_cache(3, 12, kind=PAGE)
    cached = torch.cat((model(tokens[:, :9], cache, torch.tensor(pads)), model(tokens[:, 9:], cache)), dim=1)
    for row, (out, pad) in enumerate(zip(cached, pads, strict=True)):
        torch.testing.assert_close(out[pad:], model(tokens[row : row + 1, pad:])[0], rtol=1e-9, atol=1e-9)
