"""Fair comparisons of small language models, from Python.

plan = ablate.plan("norm_placement", scale="cpu")     # what would run, and what it would cost
result = ablate.run("norm_placement", store="runs")   # train what is missing, measure, evaluate, report
result.contrasts                                      # polars frames: arms, runs, contrasts, scores
result.figure("trade-off")                            # the figures of the report, as Plotly figures
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ablate import wings as _wings
from ablate.names import warn_of_clashes

if TYPE_CHECKING:
    from ablate.api.planning import plan
    from ablate.api.reporting import report
    from ablate.api.result import StudyResult, Verdict
    from ablate.api.running import run
    from ablate.running.engines import EngineError
    from ablate.running.rehearsal import CalibrationError
    from ablate.running.stages import Failure
    from ablate.running.study_plan import StudyPlan
    from ablate.study.complaints import Problem, StudyError
    from ablate.study.reading import load_study
    from ablate.study.study import Study
    from store import AblateError, StoreError
    from store.errors import ArgumentError, DataError, ReportError

    __version__: str

    # Types for editors. A wing that is deleted takes its lines with it; nothing is imported here when a program runs.
    from ablate.wings.archive.checking import check as check
    from ablate.wings.archive.merging import Merged as Merged
    from ablate.wings.archive.merging import merge as merge
    from ablate.wings.archive.packing import Packed as Packed
    from ablate.wings.archive.packing import pack as pack
    from ablate.wings.browse.browsing import Runs as Runs
    from ablate.wings.browse.browsing import logs as logs
    from ablate.wings.browse.browsing import open as open
    from ablate.wings.campaign.judging import Judgement as Judgement
    from ablate.wings.campaign.judging import judge as judge
    from ablate.wings.compare.comparing import LossComparison as LossComparison
    from ablate.wings.compare.comparing import compare as compare
    from ablate.wings.compare.comparison_page import write_comparison as write_comparison
    from ablate.wings.compare.pooling import StoresCompared as StoresCompared
    from ablate.wings.compare.pooling import compare_stores as compare_stores
    from ablate.wings.evaluate.evaluating import Scores as Scores
    from ablate.wings.evaluate.evaluating import evaluate as evaluate
    from ablate.wings.exchange.exporting import export as export
    from ablate.wings.exchange.importing import Imported as Imported
    from ablate.wings.exchange.importing import import_model as import_model
    from ablate.wings.find.finding import Found as Found
    from ablate.wings.find.finding import find as find
    from ablate.wings.foretell.benching import bench as bench
    from ablate.wings.foretell.foretelling import Foretold as Foretold
    from ablate.wings.foretell.foretelling import plan_on as plan_on
    from ablate.wings.foretell.scaling import Fits as Fits
    from ablate.wings.foretell.scaling import ScaleUp as ScaleUp
    from ablate.wings.foretell.scaling import fit as fit
    from ablate.wings.foretell.scaling import scale_up as scale_up
    from ablate.wings.generate.generating import Generated as Generated
    from ablate.wings.generate.generating import generate as generate
    from ablate.wings.paper.exporting import Exported as Exported
    from ablate.wings.paper.exporting import export_report as export_report
    from ablate.wings.plugins.plugin_files import plug_in as plug_in
    from ablate.wings.prepare.preparing import prepare as prepare
    from ablate.wings.prepare.schema import study_schema as study_schema
    from ablate.wings.prepare.starting import new as new
    from ablate.wings.science.atlas import atlas as atlas
    from ablate.wings.science.handbook import HandbookClaim as HandbookClaim
    from ablate.wings.science.handbook import claims as claims
    from ablate.wings.science.recording import record_result as record_result
    from ablate.wings.science.registering import Registration as Registration
    from ablate.wings.science.registering import register as register
    from ablate.wings.science.replicating import Replication as Replication
    from ablate.wings.science.replicating import replicate as replicate
    from ablate.wings.search.samplers import MissingPackageError as MissingPackageError
    from ablate.wings.search.searching import SearchResult as SearchResult
    from ablate.wings.search.searching import search as search
    from ablate.wings.search.storage import StorageError as StorageError
    from ablate.wings.sizing.sizing import Sized as Sized
    from ablate.wings.sizing.sizing import size as size
    from ablate.wings.starts.checkpoints import CheckpointError as CheckpointError

# Lazy, so that `import ablate` loads neither torch nor pydantic.
_HOME = {
    "AblateError": "store",
    "ArgumentError": "store.errors",
    "CalibrationError": "ablate.running.rehearsal",
    "DataError": "store.errors",
    "EngineError": "ablate.running.engines",
    "Failure": "ablate.running.stages",
    "Problem": "ablate.study.complaints",
    "ReportError": "store.errors",
    "StoreError": "store",
    "Study": "ablate.study.study",
    "StudyError": "ablate.study.complaints",
    "StudyPlan": "ablate.running.study_plan",
    "StudyResult": "ablate.api.result",
    "Verdict": "ablate.api.result",
    "load_study": "ablate.study.reading",
    "plan": "ablate.api.planning",
    "report": "ablate.api.reporting",
    "run": "ablate.api.running",
}

__all__ = [
    "AblateError",
    "ArgumentError",
    "CalibrationError",
    "DataError",
    "EngineError",
    "Failure",
    "Problem",
    "ReportError",
    "StoreError",
    "Study",
    "StudyError",
    "StudyPlan",
    "StudyResult",
    "Verdict",
    "__version__",
    "load_study",
    "plan",
    "report",
    "run",
]

_HOME |= _wings.face()
__all__.extend(sorted(_wings.face()))

warn_of_clashes()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("ablate.machine.environment").project_version()
    if name not in _HOME:
        raise AttributeError(f"module 'ablate' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    if isinstance(value, FunctionType):
        from ablate.api.public import public  # noqa: PLC0415 (only functions need it)

        value = public(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
