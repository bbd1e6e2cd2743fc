"""What a table of runs means: noise, statistics, verdicts and outcomes of claims. Neither words of a page nor torch."""
