"""What every format must do, checked on all presets: a new format is covered by being one.

`python -m tests.test_formats` writes the golden errors anew.
"""

import functools
import json
from pathlib import Path

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from madl.formats.base import NumberFormat
from madl.formats.presets import FORMATS
from tests.reference import same

GOLDEN = Path(__file__).parent / "data" / "format_errors.json"
WHOLE = ("scaled(8,tensor)", "nvfp4")  # with a scale of the whole tensor
ROWS = {name: f for name, f in FORMATS.items() if name not in WHOLE}
per_preset = pytest.mark.parametrize("number_format", FORMATS.values(), ids=FORMATS.keys())
per_row_preset = pytest.mark.parametrize("number_format", ROWS.values(), ids=ROWS.keys())
MATRICES = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40),
    elements=st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.5]),
)


def fixed_noise() -> torch.Tensor:
    """Numbers that no generator or maths library can change: a Weyl sequence, cubed."""
    steps = np.arange(48 * 100, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    centred = steps.astype(np.float64) / 2**31 - 1
    return torch.from_numpy((4 * centred**3).astype(np.float32)).view(48, 100)


@functools.cache
def values_of(number_format: NumberFormat) -> torch.Tensor | None:
    return number_format.values()


def rms_error(number_format: NumberFormat) -> float:
    x = fixed_noise()
    return (number_format.quantize(x).double() - x.double()).square().mean().sqrt().item()


@per_preset
def test_golden_error(number_format):
    golden = json.loads(GOLDEN.read_text())
    assert rms_error(number_format) == pytest.approx(golden[number_format.name], rel=1e-6)
    if (values := values_of(number_format)) is not None:
        assert (values[0].item(), values[-1].item()) == number_format.range


@per_preset
@settings(deadline=None, max_examples=40)
@given(matrix=MATRICES)
def test_any_matrix_comes_out_finite_with_the_zeros_of_the_format_and_on_the_grid(
    number_format, matrix
):
    x = torch.from_numpy(matrix)
    q = number_format.quantize(x)
    assert (q.shape, q.dtype) == (x.shape, x.dtype)
    has_inf = number_format.grid is not None and number_format.grid.keep_inf
    assert (q.isfinite() | (x.isinf() & has_inf)).all()
    is_signed = number_format.grid is not None and number_format.grid.signed_zero
    assert torch.equal((q.signbit() & (q == 0)), (x.signbit() & (q == 0) & is_signed))
    if number_format.name == "nvfp4":  # the largest value gives the whole tensor's scale anew
        torch.testing.assert_close(number_format.quantize(q), q, rtol=1e-6, atol=0)
    elif number_format.grid is not None or number_format.range is not None:
        assert same(number_format.quantize(q), q)
    if (values := values_of(number_format)) is not None:
        assert torch.isin(q[q.isfinite()], values).all()


@per_row_preset
@settings(deadline=None, max_examples=25)
@given(matrix=MATRICES, row=st.integers(0, 39))
def test_a_row_never_depends_on_another(number_format, matrix, row):
    x = torch.from_numpy(matrix)
    row %= len(x)
    together, alone = number_format.quantize(x)[row], number_format.quantize(x[row])
    if number_format.grid is not None:
        assert same(together, alone)
    else:  # a mean is summed in another order
        torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-30)


@per_preset
def test_strides_do_not_matter_and_exact_in_bf16_means_that_bf16_holds_the_result(number_format):
    x = fixed_noise()
    for view in (x.t(), x[:, ::3], x[::2], x.view(4, 12, 100).transpose(0, 1), x[:, 5:77]):
        assert same(number_format.quantize(view), number_format.quantize(view.contiguous()))
    q = number_format.quantize(fixed_noise())
    if number_format.exact_in_bf16:
        assert same(q.bfloat16().float(), q)
    else:
        assert not same(q.bfloat16().float(), q) or number_format.name == "minifloat(16,8,ieee)"


@per_preset
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_finite_in_half_precision_stays_finite(number_format, dtype):
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    has_inf = number_format.grid is not None and number_format.grid.keep_inf
    finite, with_inf = codes[codes.isfinite()], codes[~codes.isnan()]
    for x in (finite, finite.sort().values, with_inf, codes):
        for columns in (1, 512):
            rows = x[: len(x) // columns * columns].view(-1, columns)
            q = number_format.quantize(rows)
            wanted = number_format.quantize(rows.float())
            limit = torch.finfo(dtype).max
            saturated = torch.where(wanted.isinf(), wanted, wanted.clamp(-limit, limit))
            assert same(q, saturated.to(dtype))
            assert not (q.isinf() & ~(rows.isinf() & has_inf)).any()
            if not rows.isnan().any():
                assert not q.isnan().any()


if __name__ == "__main__":
    errors = {name: rms_error(number_format) for name, number_format in FORMATS.items()}
    GOLDEN.write_text(json.dumps(errors, indent=1) + "\n")
