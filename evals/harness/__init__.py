"""lm-eval's tasks on models of the zoo."""
