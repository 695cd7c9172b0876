"""Binary, residual sign and ternary against a loop over rows."""

import math
import statistics

import pytest
import torch

from madl.formats.binary import Binary, ResidualSign, Ternary


def rows(seed: int = 0) -> torch.Tensor:
    return torch.randn(9, 33, generator=torch.Generator().manual_seed(seed))


def test_binary_is_the_sign_and_zero_is_plus_one():
    x = torch.tensor([0.3, -0.3, 0.0, -0.0, math.inf, -math.inf, math.nan])
    q = Binary().quantize(x)
    assert q[:-1].tolist() == [1, -1, 1, 1, 1, -1]
    assert q[-1].isnan()


@pytest.mark.parametrize("levels", [1, 2, 3, 8])
def test_residual_sign_equals_a_loop_over_levels(levels):
    x = rows()
    expected = []
    for row in x.tolist():
        total, residual = [0.0] * len(row), row
        for _ in range(levels):
            scale = statistics.fmean(abs(v) for v in residual)
            level = [scale if v >= 0 else -scale for v in residual]
            total = [t + v for t, v in zip(total, level)]
            residual = [r - v for r, v in zip(residual, level)]
        expected.append(total)
    got = ResidualSign(levels=levels).quantize(x)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 0.99])
def test_ternary_equals_a_loop_over_rows(threshold):
    x = rows(1)
    expected = []
    for row in x.tolist():
        limit = threshold * statistics.fmean(abs(v) for v in row)
        scale = statistics.fmean(abs(v) for v in row if abs(v) > limit)
        expected.append([math.copysign(scale, v) if abs(v) > limit else 0.0 for v in row])
    got = Ternary(threshold=threshold).quantize(x)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number_format", [ResidualSign(levels=2), Ternary()])
def test_extremes_give_finite_rows_and_nan_stays_in_its_row(number_format):
    x = torch.tensor(
        [[0.0, -0.0, 0.0], [math.inf, 1.0, -1.0], [math.nan, 1.0, 2.0], [3e38, 3e38, 3e38]]
    )
    q = number_format.quantize(x)
    assert q[0].tolist() == [0.0, 0.0, 0.0]
    assert q[[0, 1, 3]].isfinite().all()
    assert q[2].isnan().all()
