"""Folds that hold out whole classes."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openauc.features import HeldOutSplit
from openauc.features.classifier.splits import deal, random_turns

UNEVEN = np.repeat([0, 1, 2, 3, 4], [4, 8, 9, 12, 2])


def folds(y, n_splits=5, **options):
    return list(HeldOutSplit(n_splits, **{"random_state": 0, **options}).split(np.zeros((len(y), 1)), y))


labels = st.lists(st.integers(0, 5), min_size=6, max_size=40).filter(lambda y: len(set(y)) >= 3).map(np.array)


@given(labels, st.integers(2, 7), st.sampled_from([0.01, 0.25, 0.5, 0.9]), st.integers(0, 5))
def test_whole_classes_are_held_out_and_the_others_are_on_both_sides(y, n_splits, share, seed):
    found = folds(y, n_splits, known_share=share, random_state=seed)
    assert len(found) == HeldOutSplit(n_splits).get_n_splits(None, y)
    for train, test in found:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
        trained, held = set(y[train]), set(y) - set(y[train])
        assert len(trained) >= 2
        assert held
        for label in trained:
            size, tested = np.sum(y == label), np.sum(y[test] == label)
            assert tested == min(np.ceil(share * size), size - 1), "at least one of each class to learn from"


@pytest.mark.parametrize("n_splits", [2, 3, 5, 8])
def test_each_class_is_held_out_once_in_each_repetition(n_splits):
    found = folds(UNEVEN, n_splits, n_repeats=3)
    held = [sorted(set(range(5)) - set(UNEVEN[train])) for train, _ in found]
    per_repeat = len(held) // 3
    assert per_repeat == min(n_splits, 5)
    for repeat in range(3):
        assert sorted(chain(*held[repeat * per_repeat : (repeat + 1) * per_repeat])) == [0, 1, 2, 3, 4]
    assert len({tuple(one) for one in held}) > min(n_splits, 5) or n_splits >= 5, "repetitions cut the classes anew"


def test_few_classes_are_cut_again_and_again():
    assert len(folds(np.arange(3).repeat(4))) == 12
    assert len(folds(np.arange(10).repeat(4))) == 15
    assert len(folds(np.arange(30).repeat(4))) == 5
    assert len(folds(np.arange(10).repeat(4), n_repeats=1)) == 5


def test_two_classes_remain_even_if_that_needs_more_folds():
    assert all(len(np.unique(np.arange(3).repeat(4)[train])) == 2 for train, _ in folds(np.arange(3).repeat(4), 2))


@pytest.mark.parametrize("as_names", [False, True])
def test_outliers_are_in_every_test_part(as_names):
    y = np.concatenate([UNEVEN, [-1, -1, -1]])
    if as_names:
        y = np.array(["a", "b", "c", "d", "e", "odd"])[y]
    found = folds(y, unknown_label="odd" if as_names else -1)
    assert all({35, 36, 37} <= set(test.tolist()) for _, test in found)
    assert len(found) == HeldOutSplit(unknown_label="odd" if as_names else -1).get_n_splits(None, y)


def test_the_seed_decides():
    def rows(seed):
        return [test.tolist() for _, test in folds(UNEVEN, random_state=seed)]

    assert rows(3) == rows(3)
    assert rows(3) != rows(4)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 3))
def test_ranks_are_a_permutation_within_each_class(y, seed):
    y = np.array(y, int)
    turn = random_turns(y, np.random.RandomState(seed))
    for label in np.unique(y):
        np.testing.assert_array_equal(np.sort(turn[y == label]), np.arange(np.sum(y == label)))


@given(labels, st.integers(2, 7), st.sampled_from([0.1, 0.25, 0.5]), st.integers(0, 5))
def test_rows_of_one_group_are_in_one_part(y, n_splits, share, seed):
    groups = 100 * y + np.arange(len(y)) // 3  # in no order that means anything
    split = HeldOutSplit(n_splits, known_share=share, random_state=seed).split(y, y, groups)
    for train, test in split:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
        assert not set(groups[train]) & set(groups[test])
        for label in set(y[train]):
            size, tested = (len(set(groups[rows][y[rows] == label])) for rows in (np.arange(len(y)), test))
            assert tested == min(np.ceil(share * size), size - 1), "the share is one of groups"


def test_groups_may_have_names_and_single_rows_are_the_default():
    names = np.array([f"group {row}" for row in range(len(UNEVEN))])
    plain = folds(UNEVEN)
    named = HeldOutSplit(random_state=0).split(UNEVEN, UNEVEN, names)
    sizes = [[len(test) for _, test in found] for found in (plain, named)]
    assert sizes[0] == sizes[1]


@given(labels, st.integers(2, 6), st.integers(0, 5), st.integers(1, 4))
def test_groups_are_dealt_whole_and_classes_evenly(y, parts, seed, together):
    groups = 100 * y + np.arange(len(y)) // together
    part = deal(y, groups, parts, np.random.RandomState(seed))
    for group in set(groups):
        assert len(set(part[groups == group])) == 1
    for label in set(y):
        mine = np.array([part[groups == group][0] for group in set(groups[y == label])])
        if len(mine) == 1:
            assert mine[0] == -1, "without it the class would be gone"
        else:
            counts = np.bincount(mine, minlength=parts)
            assert counts.max() - counts.min() <= 1
            assert (counts > 0).sum() >= 2


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"y holds 2 known classes; at least 3 are needed, since one is held out"):
        folds(np.array([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="y holds 2 known classes"):
        folds(np.array([0, 0, 1, 1, -1]), unknown_label=-1)
    with pytest.raises(ValueError, match="n_splits is 1; expected at least 2"):
        folds(UNEVEN, 1)
    with pytest.raises(ValueError, match="n_repeats is 0; expected at least 1, or None"):
        folds(UNEVEN, n_repeats=0)
    with pytest.raises(ValueError, match=r"known_share is 25; expected a fraction in \(0, 1\), not a percentage"):
        folds(UNEVEN, known_share=25)
    with pytest.raises(ValueError, match="y is missing; classes are held out, so pass the label of every sample"):
        next(HeldOutSplit().split(np.zeros((3, 1))))
    with pytest.raises(ValueError, match="y is missing"):
        HeldOutSplit().get_n_splits()
