"""Ids that may be there more than once."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core.bag import Bag

ids = st.sets(st.sampled_from("abc"))
repeated = st.lists(st.sampled_from("abc"))


@given(st.lists(ids), st.data())
def test_each_is_there_as_often_as_it_was_added(added: list[set[str]], data: st.DataObject) -> None:
    bag, model = Bag(), Counter[str]()
    for some in added:
        are_new = False
        if data.draw(st.booleans()):
            are_new = bag.add_new([*some])
            assert are_new == (not model.keys() & some)
        if not are_new:
            bag.add(some)
        model.update(some)
    for some in data.draw(st.permutations(added)):
        model.subtract(some)
        assert {*bag.remove([*some])} == {one for one in some if not model[one]}
        model += Counter()
        assert bool(bag) == bool(model)
        assert {one for one in "abc" if one in bag} == {*model}


@given(ids, repeated)
def test_what_is_there_or_comes_twice_is_not_new_and_leaves_it_as_it_was(
    there: set[str], coming: list[str]
) -> None:
    bag = Bag()
    bag.add(there)
    are_new = bag.add_new(coming)
    assert are_new == (len({*coming}) == len(coming) and there.isdisjoint(coming))
    assert {one for one in "abc" if one in bag} == (there | {*coming} if are_new else there)
