"""A mixer that hands its cache another number of buffers than it declares is told so, by every kind of cache."""

from __future__ import annotations

import pytest
import torch

import zoo
from zoo.caches import cache_kind
from zoo.caching.cache import TokenCache

SMALL = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "block.mixer.heads": 4}


@pytest.mark.parametrize("kind", ["plain", "int8", "int4", "sink", "paged"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_buffer_that_is_missing_or_left_over_is_named(kind: str, count: int) -> None:
    model = zoo.build(zoo.load("small", **SMALL))
    cache = model.new_cache(1, 8, kind=cache_kind(kind)).layers[0]
    assert isinstance(cache, TokenCache)
    with pytest.raises(ValueError, match=rf"^extend got {count} buffers, but cached\(\) declares 2$"):
        cache.extend([torch.zeros(1, 4, 3, 6)] * count, torch.arange(3))
