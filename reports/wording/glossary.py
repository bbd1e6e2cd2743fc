"""Terms of a report, in a sentence each."""

from __future__ import annotations

from ablate.store.documents.length import LIMITS

TERMS = {
    "arm": "A model with its training settings. The baseline is the arm that the others are compared with.",
    "seed": "A number that decides initial values and the order of the data. Arms share seeds, so that differences are "
    "paired.",
    "nats": "Unit of the loss, the mean of −ln p over tokens: with 0.01 less, tokens are 1 % likelier in the mean.",
    "better, worse": "The difference is not zero at a level of 5 % for everything that is judged together.",
    "no difference": "The difference is smaller than the margin that the study states.",
    "inconclusive": "Neither is shown. The smallest difference that would have shown in four of five such studies is "
    "given as detectable.",
    "stalled": "The run learned little but token frequencies and no longer improves; diverged is worse than guessing.",
    "undertrained": f"Trained for fewer than {LIMITS}: the loss says little of longer training.",
    "tuned, carried, written": "Origin of learning rates: each arm searched its own here; in an earlier search that is "
    "cited; nobody searched.",
    "pilot": "A study that estimates and judges nothing. It spends nothing of the 5 %.",
    "look": "Each time a question is judged it spends a part of the 5 %, whatever more seeds or other arms would show.",
    "rung": "A study at one size or length of its ladder, all of whose rungs ask the same.",
    "matched": "Spent alike by every arm: FLOPs, tokens, parameters or seconds.",
    "signal to noise": "Of a score: how far the arms lie apart, over its standard error. Below about 2 the task cannot "
    "tell these arms apart.",
    "KV cache": "Memory that a model keeps of each sequence while it generates.",
}
