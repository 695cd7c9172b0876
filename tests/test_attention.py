"""Every form of attention against float64, arithmetic counted by hand, page faults, memory, limits.

What the page reads from its records is checked on made ones, whose times are known.
"""

import dataclasses
import platform

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from experiments.lab4_attention import attention, attention_profile, attention_study
from experiments.lab4_attention import page as lab4_attention
from experiments.lab4_attention.attention import MASKS, TOLERANCE
from experiments.lab4_attention.attention_problem import Problem
from experiments.lab4_attention.attention_study import Work
from madl.logbook.records import Case, Pending, Record, Records
from madl.machine import fresh, memory
from tests.conftest import a_record
from tests.synthetic import a_measurement

SMALL = {"batch": 2, "heads": 3, "length": 24, "head_dim": 16}
ON_CPU = ("naive", "math", "flash")


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("form", ON_CPU)
def test_torch_and_naive_agree_with_float64(form, dtype, mask, backward):
    problem = Problem(**SMALL, dtype=dtype, mask=mask, backward=backward)
    expected = attention.outcome("naive", problem, "cpu", double=True)
    found = attention.outcome(form, problem, "cpu")
    assert attention.error(found, expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_tuned_form_agrees_with_float64_at_each_call(dtype, mask):
    problem = Problem(**SMALL, dtype=dtype, mask=mask)
    expected = attention.outcome("naive", problem, "cpu", double=True)
    work = attention.call("tuned", problem, "cpu")
    for _ in range(2):  # the second finds the first one's scores in the memory that is kept
        assert attention.error(work(), expected) <= TOLERANCE[dtype]


def test_the_tuned_form_takes_its_memory_once_and_has_no_backward_pass():
    problem = Problem(**SMALL, dtype="float32")
    work = attention.call("tuned", problem, "cpu")
    assert memory.peak_bytes(work, "cpu") >= problem.score_bytes
    assert memory.peak_bytes(work, "cpu") == 0
    with pytest.raises(RuntimeError, match="no backward"):
        attention.outcome("tuned", dataclasses.replace(problem, backward=True), "cpu")


def test_the_steps_of_the_naive_form_end_in_what_it_gives():
    problem = Problem(**SMALL, dtype="float32")
    steps = attention.steps(problem, "cpu")
    assert torch.equal(steps["second product"](), attention.call("naive", problem, "cpu")())
    assert torch.equal(steps["scale"]() * 4, steps["first product"]())
    assert torch.allclose(steps["softmax"]().sum(-1), torch.ones(2, 3, 24))


@pytest.mark.parametrize("mask", MASKS)
def test_the_reference_is_attention(mask):
    """By a loop over positions, which shares nothing with the formula under test."""
    problem = Problem(batch=1, heads=1, length=7, head_dim=4, dtype="float32", mask=mask)
    q, k, v = (t[0, 0].double() for t in attention.inputs(problem, "cpu"))
    found = attention.outcome("naive", problem, "cpu", double=True)[0, 0]
    hidden = int(attention.PADDED * 7)
    for i in range(7):
        last = {"none": 7, "causal": i + 1, "padding": 7 - hidden}[mask]
        weights = [float(torch.exp(q[i] @ k[j] / 4**0.5)) for j in range(last)]
        row = sum(w * v[j] for j, w in enumerate(weights)) / sum(weights)
        assert torch.allclose(found[i], row)


def test_ones_pass_at_any_scale_and_random_inputs_do_not():
    for by_input in attention.scale_errors(32, 16).values():
        assert by_input["all ones"] < 1e-6
        assert by_input["random"] > 0.1


def test_work_is_counted_as_by_hand():
    # B = 2, H = 3, T = 4, D = 5: q k^T is 2·3·4·4·5 = 480 multiply-adds, and so is p v
    one = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float32")
    assert one.flops == 2 * 480 * 2
    causal = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float32", mask="causal")
    assert causal.flops == 2 * 2 * (2 * 3 * 10 * 5)  # 1 + 2 + 3 + 4 pairs
    both = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float32", backward=True)
    assert both.flops == 3 * one.flops


def test_traffic_is_counted_as_by_hand():
    one = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float16")
    assert one.tensor_bytes == 2 * 3 * 4 * 5 * 2
    assert one.score_bytes == 2 * 3 * 4 * 4 * 2
    # out of the product; in and out of the division; in and out of the softmax; into the product
    assert one.moved_bytes("naive") == 6 * one.score_bytes + 4 * one.tensor_bytes
    assert one.moved_bytes("tuned") == 4 * one.score_bytes + 4 * one.tensor_bytes
    assert one.moved_bytes("flash") == 4 * one.tensor_bytes


def test_the_profiler_counts_the_same_products():
    problem = Problem(**SMALL, dtype="float32")
    with FlopCounterMode(display=False) as counter:
        attention.call("naive", problem, "cpu")()
    assert counter.get_total_flops() == problem.flops


def test_peak_memory_is_what_the_formula_holds():
    """Two matrices of scores at once, and the scaled queries or the output beside them."""
    problem = Problem(batch=1, heads=2, length=512, head_dim=16, dtype="float32")
    naive = memory.peak_bytes(attention.call("naive", problem, "cpu"), "cpu")
    assert 2 * problem.score_bytes <= naive <= 2 * problem.score_bytes + 2 * problem.tensor_bytes
    with attention.only("flash"):
        work = attention.call("flash", problem, "cpu")
        assert memory.peak_bytes(work, "cpu") < problem.score_bytes


def test_peak_memory_is_the_most_held_at_once():
    def work():
        a = torch.ones(1000, dtype=torch.uint8)
        del a
        b = torch.ones(3000, dtype=torch.uint8)
        c = torch.ones(2000, dtype=torch.uint8)
        return b, c

    assert 5000 <= memory.peak_bytes(work, "cpu") < 5400  # not 6,000: `a` was freed


LIMITS = {"device": "cpu", "limit_gb": 1.0, "limit_s": 60.0, "budget_s": 0.0}


def test_out_of_memory_is_a_cell_and_the_rest_goes_on():
    shape = {"batch": 1, "heads": 4, "head_dim": 16, "dtype": "float32", "lengths": [64, 4096]}
    found = attention_study.time_lengths({**LIMITS, **shape, "limit_gb": 0.19})
    assert found["missing"]["naive 4096"] == attention_study.OUT_OF_MEMORY
    assert found["missing"]["tuned 4096"] == attention_study.OUT_OF_MEMORY
    assert {"naive 64", "tuned 64", "flash 64", "flash 4096"} <= set(found["measurements"])
    assert torch.ones(256 << 20, dtype=torch.uint8).sum() > 0  # the limit is gone again


def test_a_form_that_a_device_has_not_says_so():
    found = attention_study.time_lengths({**LIMITS, **SMALL, "dtype": "float32", "lengths": [24]})
    assert {"efficient 24", "cudnn 24"} == set(found["missing"])
    assert {"naive 24", "tuned 24", "math 24", "flash 24"} == set(found["measurements"])


def test_a_form_that_takes_too_long_says_so():
    shape = {**SMALL, "dtype": "float32", "lengths": [24]}
    found = attention_study.time_lengths({**LIMITS, **shape, "limit_s": 0.0})
    assert found["missing"]["naive 24"] == "over 0 s"
    assert found["measurements"] == {}


def test_dtypes_and_variants_are_timed_in_turn_and_only_the_call_is_timed():
    found = attention_study.time_dtypes({**LIMITS, **SMALL})["measurements"]
    assert set(found) == {f"{f} {d}" for f in ("naive", "tuned", "fused") for d in TOLERANCE}
    assert all(run["turns"] > 0 for run in found.values())
    found = attention_study.time_variants({**LIMITS, **SMALL, "dtype": "float32"})["measurements"]
    problems = {form: list(attention_study.VARIANTS) for form in ("naive", "fused")}
    problems["tuned"] = ["no mask", "causal", "padding"]  # it has no backward pass
    assert set(found) == {f"{form} {v}" for form, names in problems.items() for v in names}
    assert found["fused and backward"]["subject"]["is_training_step"]


def test_a_pass_back_and_forth_is_timed_as_one():
    problem = Problem(**SMALL, dtype="float32", backward=True)
    work = attention.call("naive", problem, "cpu")
    subject = attention_study.observed(Work(work, "naive", problem))
    assert subject.is_training_step
    assert subject.records_gradient
    assert subject.shape == "2×3×24×16"


GLIBC = platform.libc_ver()[0] == "glibc"
NEEDS_GLIBC = pytest.mark.skipif(not GLIBC, reason="another allocator than glibc's")
FAULTY = {**LIMITS, "kind": "profile", "batch": 1, "heads": 8, "head_dim": 16, "dtype": "float32"}


@NEEDS_GLIBC
def test_scores_within_what_the_allocator_keeps_are_not_faulted_in_anew():
    function = f"{attention_study.__name__}:{attention_study.measure.__name__}"
    found = fresh.call(function, {**FAULTY, "length": 512})  # 8 MiB of scores, 2,048 pages
    assert set(found["faults"]) == {"naive", "tuned", "fused", *attention_profile.STEPS}
    assert set(found["measurements"]) == {"naive", *attention_profile.STEPS}
    assert max(found["faults"].values()) < 512


@NEEDS_GLIBC
def test_each_larger_matrix_of_the_naive_form_is_faulted_in_and_the_tuned_form_keeps_its_own():
    function = f"{attention_study.__name__}:{attention_study.measure.__name__}"
    found = fresh.call(function, {**FAULTY, "length": 1100})
    pages = Problem(**{k: FAULTY[k] for k in ("batch", "heads", "head_dim", "dtype")}, length=1100)
    pages = pages.score_bytes // found["page_bytes"]
    assert found["faults"]["naive"] >= 3 * pages  # products, scaled, weights
    assert found["faults"]["softmax"] >= pages
    assert found["faults"]["tuned"] < pages


def test_pinning_a_backend_really_forbids_the_others():
    q = torch.randn(1, 1, 4, 8)
    with attention.only("cudnn"), pytest.raises(RuntimeError, match="viable|available"):
        F.scaled_dot_product_attention(q, q, q)


def a_timing(kind: str, ms: dict[str, float], **params) -> Record:
    """A case whose variants took these times in each of three processes."""
    runs = {
        name: [a_measurement([one / 1e3 * x for x in (1.0, 1.001, 0.999)]) for _ in range(3)]
        for name, one in ms.items()
    }
    for several in runs.values():
        for process, one in enumerate(several):  # so that they are not all alike
            one["samples_s"] = [x * (1 + 0.001 * process) for x in one["samples_s"]]
    shape = {"batch": 1, "heads": 8, "head_dim": 64, "device": "cpu"}
    case = Case(experiment="lab4_attention", params={"kind": kind, **shape, **params})
    return dataclasses.replace(a_record(), case=case, values={"measurements": runs, "missing": {}})


def lengths(dtype: str, ms: dict[str, float]) -> Record:
    return a_timing("time", ms, dtype=dtype, lengths="512 1024 4096")


GROWING = Records(
    [
        lengths(
            "float32",
            {
                **{"naive 512": 2.0, "flash 512": 4.0, "naive 1024": 20.0, "flash 1024": 10.0},
                "flash 4096": 50.0,
            },
        ),
        a_timing("dtypes", {"naive bfloat16": 4.0, "fused bfloat16": 8.0}, length=128),
    ]
)


def test_the_claim_of_speed_is_of_the_longest_sequence_of_which_both_were_timed():
    found = lab4_attention.cpu_faster(GROWING)
    assert found.agrees
    assert found.p < 0.01
    assert "1,024 positions" in found.supported
    assert "2 × as fast" in found.supported


def test_the_tuned_rival_has_claims_of_its_own():
    with pytest.raises(Pending):
        lab4_attention.beats_tuned(GROWING)
    ms = {"naive 512": 8.0, "tuned 512": 4.0, "flash 512": 5.0}
    r = Records([lengths("float32", ms)])
    assert not lab4_attention.beats_tuned(r).agrees
    found = lab4_attention.care_pays(r)
    assert found.agrees
    assert found.supported.startswith("Attention written out with care")
    assert "2 × as fast as naive attention" in found.supported


def test_growth_is_given_as_the_range_over_processes_and_never_as_one_factor():
    shape = {"head_dim": 64, "device": "cpu", "limit_gb": 1.0, "batch": 1, "heads": 8}
    peaks = [
        {"form": form, "dtype": "float32", "length": n, "peak_bytes": n * n, "score_bytes": n * n}
        for form in ("naive", "flash")
        for n in (512, 1024)
    ]
    case = Case(experiment="lab4_attention", params={"kind": "memory", **shape})
    held = dataclasses.replace(a_record(), case=case, values={"peaks": peaks})
    timed = lengths("float32", {"naive 512": 2.0, "naive 1024": 20.0})
    runs = timed.values["measurements"]["naive 512"]
    runs[0]["samples_s"] = [4 * s for s in runs[0]["samples_s"]]  # one process of the other mode
    text = lab4_attention.grows(Records([timed, held])).text
    assert "1,024 positions against 512" in text
    assert "4 × the memory and 2.5 to 10" in text


def machine(copy: float, product: float) -> Record:
    """Ceilings in GB/s and Gop/s."""
    case = Case(experiment="machine", params={"device": "cpu"})
    runs = {name: a_measurement([1.0, 1.1]) for name in ("copy", "fp32")}
    amount = {"copy": copy * 1e9, "fp32": product * 1e9}
    values = {"measurements": runs, "amount": amount}
    return dataclasses.replace(a_record(), case=case, values=values)


def test_a_roofline_has_points_on_both_sides_of_its_ridge():
    r = Records([*GROWING, machine(copy=20.0, product=300.0)])
    rows = lab4_attention.roofline(r).rows
    ceilings = [(row["operations a byte"], row["the machine's ceilings"]) for row in rows[-3:]]
    assert (15.0, 300.0) in ceilings  # the ridge
    points = {(row["form"], row["positions"]): row for row in rows[:-3]}
    naive, fused = points["naive", "512"], points["SDPA flash", "512"]
    assert naive["operations a byte"] < 15 < fused["operations a byte"] == 512 / 4
    assert naive["reached"] == pytest.approx(4 * 8 * 512**2 * 64 / 2e-3 / 1e9, rel=0.01)
    with pytest.raises(Pending):
        lab4_attention.roofline(GROWING)


def test_a_form_is_held_to_the_ceiling_that_its_operations_a_byte_meet():
    ms = {"naive 512": 2.0, "tuned 512": 2.0, "flash 512": 2.0}
    r = Records([lengths("float32", ms), machine(copy=20.0, product=300.0)])
    text = lab4_attention.under_the_roof(r).text
    # 2 ms are 268 Gop/s: of 20 × 9.85 for naive, of 20 × 14.2 for tuned, of 300 for fused
    assert "meet at 15.0 operations a byte" in text
    assert all(share in text for share in ("136.", "94.", "89."))


def test_the_steps_of_a_call_are_shares_of_the_whole_and_faults_are_named_by_form():
    ms = {"naive": 10.0, "first product": 3.0, "scale": 2.0, "softmax": 3.0, "second product": 1.0}
    made = a_timing("profile", ms, dtype="float32", length=2048, processes=3)
    faults = {"naive": 98_307, "tuned": 0, "fused": 2}
    r = Records([dataclasses.replace(made, values=made.values | {"faults": faults} | PAGES)])
    assert "products take 40.0 % of the call" in lab4_attention.time_goes(r).text
    assert "softmax between them 50.0 %" in lab4_attention.time_goes(r).text
    assert "naive 98,307 (403 MB), tuned 0 (0 MB), fused 2" in lab4_attention.faults(r).text
    rows = lab4_attention.steps(r)
    assert [row["step"] for row in rows] == [*attention_profile.STEPS, "all of it"]
    assert rows[-1]["pages faulted in"] == 98_307


PAGES = {"page_bytes": 4096}


def test_the_variants_say_their_dtype_and_shape():
    ms = {f"{form} {name}": 1.0 for form in ("naive", "fused") for name in attention_study.VARIANTS}
    rows = lab4_attention.variants(Records([a_timing("variants", ms, dtype="float32", length=512)]))
    said = [(row["problem"], row["dtype"], row["shape"]) for row in rows]
    assert said[1] == ("forward, causal mask", "FP32", "batch 1, 8 heads, 512 positions")
    assert said[-1][:2] == ("forward and backward", "BF16")


def test_the_checks_say_their_length_tolerance_and_worst_error():
    scales = {"no scale": {"all ones": 1.44e-15, "random": 0.95}}
    errors = [{"form": "naive", "dtype": "bfloat16", "error": 0.01}, {"missing": "no kernel"}]
    values = {"errors": errors, "tolerance": TOLERANCE, "scales": scales}
    case = Case(
        experiment="lab4_attention", params={"kind": "correct", "device": "cpu", "length": 9}
    )
    r = Records([dataclasses.replace(a_record(), case=case, values=values)])
    text = lab4_attention.all_are_correct(r).text
    assert "inputs of 9 positions, 1 of 1 combinations" in text
    assert "FP32 1e-5, BF16 0.04" in text
    assert "worst error is 25.0 % of its tolerance" in text
    assert "at most 1.4e-15 of the largest" in lab4_attention.ones_prove_nothing(r).text


def test_the_notebook_shape_is_a_case_of_its_own():
    found = lab4_attention.bf16_faster(GROWING)
    assert not found.agrees
    assert "2 × the time" in found.refuted
    with pytest.raises(Pending):
        lab4_attention.bf16_faster(Records(GROWING[:1]))


def test_a_form_that_ran_out_of_memory_ends_its_line():
    rows = lab4_attention.time(GROWING).rows
    assert [row["positions"] for row in rows] == [512, 1024, 4096]
    assert rows[-1]["naive"] is None


def test_a_device_that_did_not_run_has_no_rows():
    assert {row["panel"] for row in lab4_attention.time(GROWING).rows} == {"CPU, FP32"}
