"""Loss of every token of a few passages of held-out text, to see which tokens make the difference."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from evals.evaluations import EvaluationSpec
from evals.evaluations._passages import nothing, obstacle, plain, starts_of
from evals.found import Found
from evals.reading.passes import evaluating
from evals.reading.windows import token_nats
from evals.subject import HeldOutText, Subject
from store.documents import JsonObject

ROWS_AT_ONCE = 16


class TokenLossesSpec(EvaluationSpec):
    """Loss of every token of a few held-out passages, the same for every arm."""

    passages: Annotated[int, Field(ge=2, le=256)] = 32
    """Number of passages, drawn from held-out text."""
    tokens: Annotated[int, Field(ge=2, le=1024)] = 128
    """Tokens of each passage; no more than the training context."""

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        """A row for each passage: its tokens as text, and −ln p of each, in nats.

        The first token of a passage is predicted from the one before it, which is not shown.
        """
        length = min(self.tokens, subject.context)
        if reason := obstacle(subject.model, data.text, reads=data.text.read(length), takes=length + 1):
            return nothing(reason)
        starts = starts_of(data.text, length + 1, self.passages, subject.seed)
        windows = torch.from_numpy(data.text.windows(starts, length))
        with evaluating(subject.model):
            nats = np.concatenate([token_nats(subject.model, rows, length) for rows in windows.split(ROWS_AT_ONCE)])
        rows: list[JsonObject] = [
            {
                "start": int(start),
                "pieces": [plain(data.tokenizer, [token]) for token in window[-length:].tolist()],
                "nats": [round(value, 4) for value in row.tolist()],
            }
            for start, window, row in zip(starts, windows, nats, strict=True)
        ]
        return Found(rows=rows)
