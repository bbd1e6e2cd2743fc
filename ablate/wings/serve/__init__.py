"""A store's pages in a browser, live while its studies run."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(commands=("serve",), groups={"serve": "look"})
