"""Noise: scatter of losses, penalties of tuned rates, and differences that a study can detect. Pure numpy and scipy.

Planning uses it to choose rates and to predict power, reports to judge; `docs/statistics.md` states the rule.
"""
