"""Noise: how far losses scatter, what a tuned rate may have lost, and which differences a study can see. Pure numpy.

Planning uses it to choose rates and to predict power, reports to judge; `docs/statistics.md` states the rule.
"""
