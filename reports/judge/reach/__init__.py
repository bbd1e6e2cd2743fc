"""How far a verdict travels: results at one model size beside claims and results at others."""
