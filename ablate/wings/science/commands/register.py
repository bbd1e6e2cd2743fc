"""Register a study before it runs: print the hash of its question, arms, claims, margin, seeds and rules.

Publish the hash anywhere: a commit, a post, a time-stamping service. The study's report then says that it was
registered before its first run, or what has changed since. Needs no network and trains nothing.
"""

from __future__ import annotations

import argparse

from ablate.commands import DONE, add_json, add_study, given, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    parser.add_argument("--out", metavar="FILE", help="write the text that is hashed, to publish it later")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.register(options.study, **given(options, "scale", "sets", "out", "store"))
    if options.json:
        print_json(found.document())
        return DONE
    known = "" if found.is_new else ", as before"
    print(f"{found.study} at {found.scale}, registered {found.at}{known}")
    print(f"sha256 {found.sha256}")
    if found.ended:
        print(f"{found.ended} of its runs have ended already: its report will say so.")
    print(f"Publish the hash; the plan is in {options.out or found.path}.")
    return DONE
