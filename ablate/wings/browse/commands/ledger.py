"""Show every comparison ever judged for a study's question, with its corrected p-value.

p-values are corrected for the whole ledger, so that dropped arms and repeated attempts count. For campaigns of hundreds
of proposals, where such a correction would find nothing, --fdr controls the false-discovery rate instead, one proposal
after another.
"""

from __future__ import annotations

import argparse

from ablate.commands import DONE, add_json, add_store, print_json, print_table

CORRECTION = (
    "p: uncorrected. p_corrected: corrected within its round (the comparisons first judged together), divided by the "
    "share of the 5 %\nthat the round may spend: 4 of 5 for the first round, the rest for all later ones. "
    "significant: p_corrected < 0.05."
)
RULE = (
    "level: significance level that the rule allows, given all before. significant: p ≤ level; at most 5 % of the\n"
    "significant ones are expected to be wrong."
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY", help="name of a study, or the path of its file")
    parser.add_argument("--fdr", choices=("lord", "saffron"), help="online control of the false-discovery rate at 5 %%")
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate
    from ablate.api.named import study_name

    found = ablate.open(options.store).ledger(study_name(options.study), options.fdr)
    if options.json:
        print_json(found.to_dicts())
    else:
        shown = found if options.fdr else found.drop("level")
        print_table([tuple(shown.columns), *(tuple(map(_text, row)) for row in shown.iter_rows())])
        print(RULE if options.fdr else CORRECTION)
    return DONE


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2g}" if isinstance(value, float) else str(value)
