"""Everything that a study may name, shown: variants, parts, presets and their costs, and checks of variants."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(commands=("zoo",), groups={"zoo": "ask"}, needs=("ablate/wings/plugins", "zoo/conformance"))
