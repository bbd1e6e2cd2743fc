"""Output of `ablate plan`: the JSON document, the table's rows, and remarks below the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from pydantic_core import to_jsonable_python

from ablate.planning.campaign import CampaignOutcome, RungStudy, Starts
from ablate.planning.plan import UTILISATION, ArmPlan, Plan
from ablate.planning.study_document import NO_CORPORA, Corpora, epochs, study_arm, study_rates
from ablate.study.study import Study
from ablate.study.tune_spec import TuneSpec
from ablate.training.execution import Execution
from ablate.training.spec import TrainSpec
from evals.costs.machine import Speed
from store.documents import JsonObject, RunDocument
from store.documents.tuning import untuned
from store.extensions import module_of, modules_of
from zoo.settings.edits import expand
from zoo.settings.explain import yaml
from zoo.spec import ModelSpec

Foretold = Callable[[Plan, ArmPlan], JsonObject]
"""A rung's plan and an arm of it → further fields of the arm."""

TUNING = f"{__name__}.tuning"
"""Place of what says how arms will be tuned."""

PLANNED = {"data", "cache_bytes", "identity", "runs"}
"""Fields of an arm that `ablate plan --json` omits."""


def plan_json(
    outcome: CampaignOutcome,
    speed: Speed | None = None,
    done: Mapping[str, bool] | None = None,
    corpora: Corpora = NO_CORPORA,
    foretold: Foretold = lambda rung, arm: {},
) -> JsonObject:
    """The document of `ablate plan --json`; `runs` are those of all rungs of a ladder, `arms` those of the last.

    `estimated_seconds` is the training time of one run. It comes from the measured time of a step, if there is one, and
    then equals `seconds`; else from `speed`, at a share `utilisation` of the matmul peak plus the overhead of layers;
    else it is null. done: by digest, whether the store has the run. corpora: the prepared ones; `epochs` and
    `references` are null for other arms.
    """

    def planned(rung: Plan, arm: ArmPlan) -> JsonObject:
        text = corpora.get(arm.identity.digest)
        return {
            **study_arm(arm).model_dump(exclude=PLANNED),
            "flops": arm.flops,
            "tokens_per_parameter": arm.length.tokens_per_parameter,
            "undertrained": arm.length.undertrained,
            "epochs": epochs(arm, corpora),
            "references": dict(text.references) if text else None,
            "estimated_seconds": _seconds(arm, speed),
            "matched": arm.matched,
            **foretold(rung, arm),
        }

    def all_planned(rung: RungStudy) -> Iterator[JsonObject]:
        return (planned(rung.plan, arm) for arm in rung.plan.arms)

    study = outcome.plan.study
    return {
        "study": study.name,
        "scale": study.scale,
        "question": study.question,
        "seeds": list(study.seeds),
        "brought": to_jsonable_python(study.brought),
        "budget": study.budget.model_dump(exclude_none=True),
        "utilisation": UTILISATION,
        **{key: value for each in modules_of(__name__) for key, value in each.plan_json(outcome.plan).items()},
        "runs": [
            {"digest": run.digest, "arm": run.arm, "seed": run.seed, "reused": bool(done and done[run.digest])}
            for rung in outcome.rungs
            for run in rung.plan.runs
        ],
        "arms": [*all_planned(outcome.rungs[-1])],
        "ladder": [
            {"name": rung.plan.study.rung, "axis": rung.axis, "arms": [*all_planned(rung)]}
            for rung in outcome.rungs
            if rung.plan.study.rung
        ],
    }


def _seconds(arm: ArmPlan, speed: Speed | None) -> float | None:
    return arm.seconds if speed is None else arm.estimated_seconds(speed)


def plan_rows(
    plan: Plan,
    speed: Speed | None = None,
    corpora: Corpora = NO_CORPORA,
    cells: Callable[[Plan, ArmPlan], Mapping[str, str]] = lambda plan, arm: {},
) -> list[tuple[str, ...]]:
    """Rows of the plan's table, header first: one per arm, differences from the baseline in per cent.

    Edits made by matching have a column if there are any. Parameters are those without embeddings and head, and tokens
    per parameter are of these, with the earlier training of an arm that starts from another. cells: texts
    of an arm in further columns.
    """
    columns = ["arm", "parameters", "total", "FLOP/token", "steps", "tokens", "tokens/parameter", "epochs"]
    solved = ["adjusted to match"] * any(arm.matching for arm in plan.arms)
    context = " to ".join(f"{each:,}" for each in sorted({arm.train.context for arm in plan.arms}))
    rows = [(*columns, "FLOPs", f"KV bytes/token at {context}", "seconds/run", *cells(plan, plan.arms[0]), *solved)]
    for arm in plan.arms:
        estimate, passes = _seconds(arm, speed), epochs(arm, corpora)
        edits = ", ".join(f"{path}={value}" for path, value in arm.matching.items())
        time = "" if estimate is None else f"{estimate:,.0f}" if estimate >= 10 else f"{estimate:.2g}"
        rows.append(
            (
                arm.name,
                f"{arm.cost.params_inside:,}",
                f"{arm.parameters:,}{_percent(arm.differs['parameters'])}",
                f"{arm.flops_per_token:,.0f}",
                f"{arm.steps:,}",
                f"{arm.tokens:,}{_percent(arm.differs['tokens'])}",
                f"{arm.length.tokens_per_parameter:.3g}",
                "–" if passes is None else f"{passes:.2g}",
                f"{arm.flops:.3g}{_percent(arm.differs['flops'])}",
                "–" if arm.kv_bytes_per_token is None else f"{arm.kv_bytes_per_token:,.0f}",
                time and time + _percent(arm.differs.get("seconds", 0.0)),
                *cells(plan, arm).values(),
                *([edits] * len(solved)),
            )
        )
    return rows


def matched_line(plan: Plan) -> str:
    """`Matched: flops and parameters. In brackets: the difference from pre.`"""
    return f"Matched: {plan.study.budget.matched}. In brackets: the difference from {plan.study.baseline}."


def refusal_lines(arms: Iterable[ArmPlan], execution: Execution) -> Iterator[str]:
    """A line for each arm whose runs cannot be executed as asked."""
    for arm in arms:
        reason = refusal(arm.runs[0].identity, arm.train, arm.spec, execution)
        if reason is not None:
            yield f"arm {arm.name}: {reason}"


def refusal(run: RunDocument, train: TrainSpec, model: ModelSpec, execution: Execution) -> str | None:
    """Why a run cannot be executed with these settings; None if it can. train, model: the run's own."""
    if isinstance(execution.microbatch, int) and model.couples_rows is not None:
        return f"`--microbatch {execution.microbatch}`: a batch cannot be split: {model.couples_rows}"
    if execution.devices == 1:
        return None
    if (wing := module_of("ablate.training.batch")) is None:
        return "`--devices`: this installation trains a run on one device"
    return wing.refusal(run, train, model, execution)  # type: ignore[no-any-return]


def remarks(study: Study, tuned: bool, starts: Starts = MappingProxyType({})) -> Iterator[str]:
    """Remarks below a plan's table: those of wings, valid but probably unintended settings, tuning,
    and seeds whose number depends on results."""
    for each in modules_of(__name__):
        yield from each.remarks(study)
    yield from (f"arm {arm.name}: {caution}" for arm in study.arms for caution in arm.model.cautions)
    tune = study.tune
    if study.carried is not None or (tune is None and len(study.arms) > 1):
        yield untuned(study_rates(study))
    elif tune is not None and not tuned:
        for each in modules_of(TUNING):
            yield from each.remarks(study, starts)
    if auto := study.auto_seeds:
        yield f"seeds: from {auto.start} to {auto.cap}, as many as every arm needs for a verdict"


def tuning_runs(tune: TuneSpec, starts: Starts = MappingProxyType({})) -> float:
    """Cost of an arm's tuning in full-length runs, as far as known in advance."""
    return float(sum(wing.tuning_runs(tune, starts) for wing in modules_of(TUNING)))


def _percent(difference: float) -> str:
    return "" if abs(difference) < 0.05 else f" ({difference:+.1f} %)".replace("-", "−")


def brought_lines(study: Study) -> list[str]:
    """Line on the settings of the shipped scale: `scale cpu sets base: {d_model: 48, n_layers: 2}, seeds: 5`."""
    if not study.brought:
        return []
    sections = (f"{name}: {_flow(value)}" for name, value in expand(study.brought).items())
    return [f"scale {study.scale} sets {', '.join(sections)} (edit them under `scales.{study.scale}`)"]


def _flow(value: object) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return value if isinstance(value, str) else yaml(value)
