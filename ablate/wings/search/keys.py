"""The key of a study that a search reads."""

from __future__ import annotations

from typing import Annotated

from ablate.study.layering import LayerRule, space_by_path
from ablate.wings.search.search_spec import SearchSpec
from zoo.settings.axis import Spec


class SearchKeys(Spec):
    """Keys of a study."""

    search: Annotated[SearchSpec | None, LayerRule(spelled=space_by_path)] = None
    """Settings of the base that `ablate search` varies, and its objectives."""


KEYS = SearchKeys
