"""A store's pages: its index and all its trade-offs, as files, or in a browser, live while its studies run."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(commands=("serve",), groups={"serve": "look"}, adds={"ablate.api.reporting": "site"})
