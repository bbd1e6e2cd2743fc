"""lm-eval's tasks on zoo models."""
