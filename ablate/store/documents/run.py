"""`run.json`: the identity of a run, everything that can change its numbers. Written first."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.store.documents._document import Document, JsonObject, Part, is_none
from ablate.store.documents.data import HeldOutPart


class RunData(Part):
    """Data that a run is trained on."""

    digest: str
    """Names the corpus in `data/`."""


class RunNumerics(Part):
    """Device and number formats of a run."""

    device: str
    """`cpu` or `cuda`."""
    dtype: str
    """`float32`, or `bfloat16` for autocast over float32 weights."""
    matmul: str
    """torch's precision of float32 matrix products: `highest`, `high` or `medium`."""
    gpu: str | None = Field(default=None, exclude_if=is_none)
    """The GPU's name, cuDNN's version, and `FlashAttention-3` and `flash-linear-attention` where they are used. Absent
    on a CPU, and where the run was planned on a machine without the GPU."""


class RunProbes(Part):
    """Probes that are recorded during training."""

    every: float
    """Interval between probes, as a share of the steps; the first and the last step are always probed."""
    which: tuple[str, ...]
    """Names of the probes."""


class RunStart(Part):
    """Weights that a run starts from."""

    run: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the run that trained them."""
    checkpoint: str | None = Field(default=None, exclude_if=is_none)
    """Or digest of the checkpoint in `checkpoints/` that they are of."""
    pooling: Literal["mean", "first", "random"]
    """Method of merging several heads into one."""
    growth: Literal["stack", "duplicate", "width", "thin", "truncate"] | None = Field(default=None, exclude_if=is_none)
    """Method of initialising a deeper, shallower or wider model."""
    batches_before: int = 0
    """Number of batches of this run's size that `run` has read: this one goes on in the text after them."""


class RunTeacher(Part):
    """The model whose predictions are targets beside the text."""

    run: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the run that trained it."""
    checkpoint: str | None = Field(default=None, exclude_if=is_none)
    """Or digest of the checkpoint in `checkpoints/` that it is."""
    temperature: float
    """Number that the logits of both models are divided by."""
    weight: float
    """The teacher's share of the loss."""
    top_k: int | None = Field(default=None, exclude_if=is_none)
    """Number of the teacher's likeliest tokens that count; all where absent."""


class RunDocument(Document):
    """One training run. Probes are part of the digest: a stored run without them has no probe data to show."""

    digest: str
    """Digest of all other fields, with the model resolved; the name of the run's folder."""
    seed: int
    """Determines the initial values and the order of the data."""
    model: JsonObject
    """The model's spec; `zoo.parse` reads it."""
    train: JsonObject
    """Settings of its training; `ablate.training.spec.TrainSpec` reads them."""
    steps: int
    """Optimizer steps."""
    data: RunData
    """Data that it is trained on."""
    numerics: RunNumerics
    """Device and number formats of its computation."""
    probes: RunProbes | None = Field(default=None, exclude_if=is_none)
    """Probes, where there are any."""
    start: RunStart | None = Field(default=None, exclude_if=is_none)
    """Where its weights come from, if not from the seed."""
    imported: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the checkpoint that the model is, where it was trained elsewhere. Then `data` is the text that its loss
    is of, and there are no `steps`."""
    conventions: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the files in `published/`: of the tokenizer of an imported model, as it was published, with which tasks
    are put to it. Absent where transformers cannot read them, and in runs of versions before December 2026."""
    begins: tuple[int, ...] = Field(default=(), exclude_if=lambda tokens: not tokens)
    """Tokens that an imported model reads before every window of held-out text, in place of the window's first one: its
    BOS. None in runs of versions before December 2026."""
    teacher: RunTeacher | None = Field(default=None, exclude_if=is_none)
    """Model that it is distilled from, if any."""
    plugins: dict[str, str] | None = Field(default=None, exclude_if=is_none)
    """Digests of the files of the plug-ins that model, training and data are made of, by `axis.name`; of an installed
    one after the name and version of its distribution."""
    reads: HeldOutPart = Field(default="test", exclude_if=lambda part: part == "test")
    """The held-out part of the final loss and of evaluations: `tuning` in trials of `tune`, `judging` in those of a
    search, else `test`."""
