"""Entropies of random grammars, from their rules."""

from __future__ import annotations

import numpy as np

from ablate.data.sources.grammar import Floats, GrammarSource, Rules


def entropy(source: GrammarSource, length: int) -> float:
    """Nats per symbol of a sentence of `length` symbols: (1 / T) Σₜ Σₛ P(state at t = s) H(s)."""
    of_state, moves = entropies(source.rules), transitions(source.rules)
    at, total = np.eye(source.states)[0], 0.0
    for _ in range(length):
        total += float(at @ of_state)
        at = at @ moves
    return total / length


def entropies(rules: Rules) -> Floats:
    """(states,): entropy of the next symbol, in nats."""
    out: Floats = -(rules.chances * np.log(rules.chances)).sum(axis=1)
    return out


def transitions(rules: Rules) -> Floats:
    """(states, states): probability of each next state (column) given the state (row)."""
    matrix = np.zeros((len(rules.chances),) * 2)
    np.add.at(matrix, (np.arange(len(matrix))[:, None], rules.following), rules.chances)
    return matrix
