"""Batches: every picture comes, in an order that the seed and the epoch decide, from any place on."""

import numpy as np
import pytest

from trainer import loader
from trainer.data import Part, Sample, arrays

from .test_augment import EVERYTHING, OFF


def part(count, together=True):
    images = np.arange(count, dtype=np.uint8)[:, None, None, None] * np.ones((1, 6, 6, 1), np.uint8)
    labels = np.arange(count, dtype=np.int32)
    names = [str(i) for i in range(count)]
    return (
        arrays(names, images, labels) if together else Part(names, lambda i: Sample(images[i], int(labels[i])), labels)
    )


def labels(samples):
    return np.array([sample.label for sample in samples])


@pytest.mark.parametrize("together", [True, False])
def test_an_epoch_is_a_permutation(together):
    batches = list(loader.training(part(20, together), labels, 4, 1, 0, OFF, 3))
    assert sorted(np.concatenate([truth for _, truth, _ in batches])) == list(range(20))
    assert all((images[:, 0, 0, 0] == truth).all() and images.dtype == np.uint8 for images, truth, _ in batches)
    assert (loader.order(20, 1, 0) != loader.order(20, 1, 1)).any() and (
        loader.order(20, 1, 0) != loader.order(20, 2, 0)
    ).any()


@pytest.mark.parametrize("threads", [1, 4])
def test_it_can_begin_anywhere(threads):
    whole = list(loader.training(part(23), labels, 4, 7, 3, EVERYTHING, 2))
    rest = list(loader.training(part(23), labels, 4, 7, 3, EVERYTHING, threads, begin=2))
    assert len(whole) == 5 and len(rest) == 3
    for (a, b, _), (c, d, _) in zip(whole[2:], rest):
        assert (a == c).all() and (b == d).all()
    assert not list(loader.training(part(23), labels, 4, 7, 3, OFF, 2, begin=5))


def test_fewer_pictures_than_a_batch():
    [(images, truth, count)] = loader.training(part(3), labels, 8, 0, 0, OFF, 2)
    assert len(images) == count == 8 and set(truth) == {0, 1, 2}


def test_in_order_has_one_shape_and_counts_each_once():
    batches = list(loader.in_order(part(10), labels, 4, 3))
    assert [len(images) for images, _, _ in batches] == [4, 4, 4] and [count for _, _, count in batches] == [4, 4, 2]
    assert np.concatenate([truth[:count] for _, truth, count in batches]).tolist() == list(range(10))


def test_a_failure_of_a_thread_comes_out():
    def broken(i):
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(loader.in_order(Part(["a"], broken), labels, 4, 2))
