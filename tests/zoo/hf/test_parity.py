"""Every family on random configs: `draw(family, seed)` gives a config again."""

from __future__ import annotations

import functools

import pytest

import zoo
from tests.many import assert_all
from tests.zoo.hf import kinds, parity

FAST, WIDE = 1, 60


def check(family: str, seed: int) -> None:
    config = parity.draw(family, seed)
    model = parity.hf_model(config, seed)
    if config.is_encoder_decoder:
        kinds.check_encoder_decoder(model)
        return
    if config.model_type == "bert":
        kinds.check_encoder(model)
        return
    ours = zoo.from_hf(model)
    parity.check_logits(model, ours)
    parity.check_padding(model, ours)
    parity.check_round_trip(model, ours)


@pytest.mark.parametrize("seed", range(FAST))
@pytest.mark.parametrize("family", parity.FAMILIES)
def test_a_family_agrees_on_random_configs(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", parity.FAMILIES)
def test_a_family_agrees_on_many_random_configs(family: str) -> None:
    assert_all(functools.partial(check, family), range(FAST, WIDE))


def test_every_family_is_drawn() -> None:
    from zoo.hf import families  # noqa: PLC0415

    assert sorted({f.model_types[0].replace("-", "_") for f in families().values()}) == parity.FAMILIES
