"""Stored documents: one typed model for each. Nothing here reads or writes; `store.Store` does."""

from store.documents._document import (
    Document,
    Environment,
    GpuState,
    JsonObject,
    JsonScalar,
    Nats,
    Part,
    Quartiles,
    Unit,
)
from store.documents.calibration import CalibrationDocument
from store.documents.campaign import ProposalOutcome, ProposalRecord, ProposalTest
from store.documents.caveat import Caveat
from store.documents.claims import StudyClaim
from store.documents.costs import CostPoint, CostProcess, CostsDocument
from store.documents.data import (
    DataDocument,
    HeldOutPart,
    PerSplit,
    ReferenceLosses,
    SyntheticMeta,
    TakenPart,
    TakenText,
    TextMeta,
    TextSplit,
)
from store.documents.design import StudyDesign, StudyEffect
from store.documents.evals import EvalsDocument, Score, Section, TaskGroup
from store.documents.imported import ImportDocument
from store.documents.ledger import JudgedDocument, LedgerRecord, LedgerTest
from store.documents.length import Length
from store.documents.measure import (
    CacheLoss,
    CachePoint,
    DecodePoint,
    LossThroughCache,
    MeanNats,
    Measured,
    MeasureDocument,
    MeasuredPoint,
    PrefillPoint,
    SpeedPoint,
)
from store.documents.packed import MergedRecord, PackDocument, PackedFile
from store.documents.published import StudyPublished, StudyPublishedRow
from store.documents.records import MetricsRecord, ProbeRecord
from store.documents.references import References, ReferencesDocument
from store.documents.registered import RegistrationRecord, StudyRegistration
from store.documents.result import GradNorm, ItemLoss, LogSums, ResultDocument
from store.documents.run import RunData, RunDocument, RunNumerics, RunProbes, RunStart, RunTeacher
from store.documents.sample import SampleRecord
from store.documents.search import (
    Choices,
    Confirmed,
    Distribution,
    Range,
    SearchBase,
    SearchDocument,
    TrialRecord,
    TrialState,
    Values,
)
from store.documents.study import (
    ParameterBudget,
    SpentBudget,
    StudyContrast,
    StudyDocument,
    StudyLook,
    StudyObjective,
    StudyRung,
)
from store.documents.study_arm import CacheBytes, StudyArm, StudyRun
from store.documents.tuning import (
    SearchStart,
    StartsDocument,
    StudyPass,
    StudyRates,
    StudyTrial,
    StudyTuning,
)

__all__ = [
    "CacheBytes",
    "CacheLoss",
    "CachePoint",
    "CalibrationDocument",
    "Caveat",
    "Choices",
    "Confirmed",
    "CostPoint",
    "CostProcess",
    "CostsDocument",
    "DataDocument",
    "DecodePoint",
    "Distribution",
    "Document",
    "Environment",
    "EvalsDocument",
    "GpuState",
    "GradNorm",
    "HeldOutPart",
    "ImportDocument",
    "ItemLoss",
    "JsonObject",
    "JsonScalar",
    "JudgedDocument",
    "LedgerRecord",
    "LedgerTest",
    "Length",
    "LogSums",
    "LossThroughCache",
    "MeanNats",
    "MeasureDocument",
    "Measured",
    "MeasuredPoint",
    "MergedRecord",
    "MetricsRecord",
    "Nats",
    "PackDocument",
    "PackedFile",
    "ParameterBudget",
    "Part",
    "PerSplit",
    "PrefillPoint",
    "ProbeRecord",
    "ProposalOutcome",
    "ProposalRecord",
    "ProposalTest",
    "Quartiles",
    "Range",
    "ReferenceLosses",
    "References",
    "ReferencesDocument",
    "RegistrationRecord",
    "ResultDocument",
    "RunData",
    "RunDocument",
    "RunNumerics",
    "RunProbes",
    "RunStart",
    "RunTeacher",
    "SampleRecord",
    "Score",
    "SearchBase",
    "SearchDocument",
    "SearchStart",
    "Section",
    "SpeedPoint",
    "SpentBudget",
    "StartsDocument",
    "StudyArm",
    "StudyClaim",
    "StudyContrast",
    "StudyDesign",
    "StudyDocument",
    "StudyEffect",
    "StudyLook",
    "StudyObjective",
    "StudyPass",
    "StudyPublished",
    "StudyPublishedRow",
    "StudyRates",
    "StudyRegistration",
    "StudyRun",
    "StudyRung",
    "StudyTrial",
    "StudyTuning",
    "SyntheticMeta",
    "TakenPart",
    "TakenText",
    "TaskGroup",
    "TextMeta",
    "TextSplit",
    "TrialRecord",
    "TrialState",
    "Unit",
    "Values",
]
