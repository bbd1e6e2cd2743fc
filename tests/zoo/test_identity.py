"""Equality of settings in digests: what JSON tells apart is not the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zoo.identity import canonical, is_same

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5])
    | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)


@given(PLAIN, PLAIN)
def test_values_are_the_same_whose_json_is(one: object, other: object) -> None:
    assert is_same(one, other) == (canonical(one) == canonical(other))
    assert is_same(one, one)
