"""Norm of the gradient, by layer and by role."""

from __future__ import annotations

from collections.abc import Iterable

from ablate.training.probes._kinds import GradientProbe, Parameter, Reading, groups, norm


class GradientNorm(GradientProbe):
    """√Σ g² of each layer (`all`), of each role in each of its parts (`ffn.output`), and of the whole model and each
    role in it (layer None).

    Xiong et al. 2020, arXiv:2002.04745, Theorem 1, is about `ffn.output` of the last layer at the first step.
    """

    def read(self, parameters: Iterable[Parameter]) -> Iterable[Reading]:
        for (layer, name), members in groups(parameters).items():
            yield Reading(layer, name, norm(p.gradient for p in members if p.gradient is not None))


PROBE = GradientNorm()
