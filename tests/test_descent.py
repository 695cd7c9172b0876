"""The descent on pairs of integers that places values."""

from madl.training.descent import around, descend


def test_a_descent_ends_below_its_eight_neighbours_and_judges_each_once():
    judged: list[tuple[int, int]] = []

    def loss(pair):
        judged.append(pair)
        x, y = pair
        return (x + y - 10) ** 2 + 0.1 * (x - y - 6) ** 2  # a valley aslant

    assert descend((5, 5), around, loss, least_gain=1e-4) == (8, 2)
    assert set(around((8, 2))) <= set(judged)
    assert len(judged) == len(set(judged))


def test_a_gain_that_is_too_small_moves_nothing():
    assert descend((3, 3), around, lambda pair: 0.69 - 1e-6 * sum(pair), least_gain=1e-4) == (3, 3)
