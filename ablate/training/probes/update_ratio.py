"""Size of an update relative to the weights that it changes."""

from __future__ import annotations

from collections.abc import Iterable

from ablate.training.probes._kinds import Parameter, Reading, UpdateProbe, groups, norm


class UpdateRatio(UpdateProbe):
    """‖w′ − w‖ / ‖w‖ of the same groups of weights as for `gradient_norm`, w before the step and w′ after it; not
    finite if all of w is zero. Weight decay counts. About 1e-3 is a rule of thumb for healthy training with Adam."""

    def read(self, parameters: Iterable[Parameter]) -> Iterable[Reading]:
        for (layer, name), members in groups(parameters).items():
            pairs = [(p.value, p.before) for p in members if p.before is not None]
            change = norm(value.float() - before.float() for value, before in pairs)
            yield Reading(layer, name, change / norm(before for _, before in pairs))


PROBE = UpdateRatio()
