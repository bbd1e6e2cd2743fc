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
from store.documents.claims import (
    JudgedDocument,
    LedgerRecord,
    LedgerTest,
    RegistrationRecord,
    StudyClaim,
    StudyPublished,
    StudyPublishedRow,
    StudyRegistration,
)
from store.documents.data import (
    DataDocument,
    HeldOutPart,
    PerSplit,
    ReferenceLosses,
    References,
    ReferencesDocument,
    SyntheticMeta,
    TakenPart,
    TakenText,
    TextMeta,
    TextSplit,
)
from store.documents.measure import (
    CacheLoss,
    CachePoint,
    CalibrationDocument,
    CostPoint,
    CostProcess,
    CostsDocument,
    DecodePoint,
    LossThroughCache,
    MeanNats,
    Measured,
    MeasureDocument,
    MeasuredPoint,
    PrefillPoint,
    SpeedPoint,
)
from store.documents.result import (
    EvalsDocument,
    GradNorm,
    ItemLoss,
    LogSums,
    ResultDocument,
    SampleRecord,
    Score,
    Section,
    TaskGroup,
)
from store.documents.run import (
    ImportDocument,
    MergedRecord,
    MetricsRecord,
    ProbeRecord,
    RunData,
    RunDocument,
    RunNumerics,
    RunProbes,
    RunStart,
    RunTeacher,
)
from store.documents.study import (
    Caveat,
    ParameterBudget,
    SpentBudget,
    StudyContrast,
    StudyDocument,
    StudyLook,
    StudyObjective,
    StudyRung,
)
from store.documents.study_arm import CacheBytes, Length, StudyArm, StudyDesign, StudyEffect, StudyRun
from store.documents.tuning import (
    SearchStart,
    StartsDocument,
    StudyPass,
    StudyRates,
    StudyTrial,
    StudyTuning,
    TuningDocument,
)
