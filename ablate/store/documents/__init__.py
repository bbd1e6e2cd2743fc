"""Stored documents: one typed model for each. Nothing here reads or writes; `ablate.store.Store` does."""

from ablate.store.documents._document import (
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
from ablate.store.documents.alias import AliasRecord
from ablate.store.documents.calibration import CalibrationDocument
from ablate.store.documents.campaign import ProposalOutcome, ProposalRecord, ProposalTest
from ablate.store.documents.claims import StudyClaim
from ablate.store.documents.costs import CostPoint, CostProcess, CostsDocument
from ablate.store.documents.data import (
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
from ablate.store.documents.design import StudyDesign, StudyEffect
from ablate.store.documents.evals import EvalsDocument, Score, Section, TaskGroup
from ablate.store.documents.imported import ImportDocument
from ablate.store.documents.ledger import JudgedDocument, LedgerRecord, LedgerTest
from ablate.store.documents.length import Length
from ablate.store.documents.measure import (
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
from ablate.store.documents.packed import MergedRecord, PackDocument, PackedFile
from ablate.store.documents.published import StudyPublished, StudyPublishedRow
from ablate.store.documents.records import MetricsRecord, ProbeRecord
from ablate.store.documents.references import References, ReferencesDocument
from ablate.store.documents.registered import RegistrationRecord, StudyRegistration
from ablate.store.documents.result import GradNorm, ItemLoss, LogSums, ResultDocument
from ablate.store.documents.run import RunData, RunDocument, RunNumerics, RunProbes, RunStart, RunTeacher
from ablate.store.documents.sample import SampleRecord
from ablate.store.documents.search import (
    Choices,
    Distribution,
    Leader,
    Range,
    SearchBase,
    SearchDocument,
    TrialRecord,
    TrialState,
    Values,
)
from ablate.store.documents.study import (
    ParameterBudget,
    SpentBudget,
    StudyContrast,
    StudyDocument,
    StudyLook,
    StudyObjective,
    StudyRung,
)
from ablate.store.documents.study_arm import CacheBytes, StudyArm, StudyRun
from ablate.store.documents.tuning import (
    SearchStart,
    StartsDocument,
    StudyPass,
    StudyRates,
    StudyTrial,
    StudyTuning,
)

__all__ = [
    "AliasRecord",
    "CacheBytes",
    "CacheLoss",
    "CachePoint",
    "CalibrationDocument",
    "Choices",
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
    "Leader",
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
