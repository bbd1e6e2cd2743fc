"""Numbers of full-size models as text."""

from __future__ import annotations

from zoo.presets import Preset


def encoding(preset: Preset) -> list[str]:
    """A note on the meaning of a context for models with an encoder."""
    has = preset.spec.encoder is not None
    return ["  A context is the encoder's tokens; the decoder has generated as many."] * has


def count(parameters: int) -> str:
    """8.03B, 124.4M."""
    return f"{parameters / 1e9:.4g}B" if parameters >= 1e9 else f"{parameters / 1e6:.4g}M"


def gigabytes(size: float) -> str:
    """16.1 GB."""
    return f"{size / 1e9:,.3g} GB" if size < 1e11 else f"{size / 1e9:,.0f} GB"
