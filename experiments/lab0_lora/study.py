"""Full fine-tuning, frozen embeddings, low-rank adapters: their accuracy, and the cost of a step.

Every method starts from the same pretrained encoder with the same untrained head, which learns in
all of them, and takes one pass over all training sentences of its seed's draw, in the same order.
Training multiplies in bfloat16 where that is fast; trained models are judged in float32.

A step's memory is counted from the tensors (weights, AdamW's two moments, activations that autograd
saves), and measured: the most that torch's allocator held during a step, on top of the weights and
moments that stay between steps.

Units: learning rates of AdamW; bytes; seconds a call.
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from experiments.lab0_lora import adapters, design, inputs
from madl.compression import size
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.machine import timing
from madl.machine.memory import keep_freed_pages
from madl.training import baseline, models
from madl.training.train import Recipe, has_fast_bf16, optimizer_of, take_step, train


def run(params: Params, ctx: Context) -> Values:
    """Run one case: the study of inputs, the costs of a step, or a training and its accuracy.

    A model of the tuning seed is judged on validation alone.
    """
    if params["method"] == "inputs":
        return inputs.study(params, ctx)
    if params["method"] == "costs":
        return step_costs(params, ctx.device)
    model = trained(params, ctx.device)
    if params["seed"] == TUNING_SEED:
        return baseline.judge_on_validation(model, params, ctx.device)
    values: dict[str, Any] = {
        "bf16": has_fast_bf16(ctx.device),
        "num_trainable": adapters.num_trainable(model),
        **baseline.judge_on_test(model, params, ctx.device),
    }
    if params["method"] == "lora":
        values["fused"] = judged_fused(model, params, ctx.device)
    return values


def untrained(params: Params, method: str) -> nn.Module:
    """The pretrained model prepared for a method: only parameters that it trains need gradients."""
    seed = int(params["seed"] or 0)
    model = models.load_pretrained(str(params["model"]), seed=seed)
    if method == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(design.FROZEN_PART not in name.split("."))
    if method == "lora":
        torch.manual_seed(seed)
        encoder = re.escape(str(model.base_model_prefix))  # its Linear layers take adapters;
        adapters.adapt_(
            model,
            layers=rf"{encoder}\..*",
            also_train=rf"(?!{encoder}\.).*",  # the layers around it are new
            rank=int(params["rank"] or 0),
            alpha=float(params["alpha"] or 0),
        )
    return model


def trained(params: Params, device: str) -> nn.Module:
    """The model after one pass of the case's method; the method "untrained" takes none."""
    model = untrained(params, str(params["method"]))
    if params["method"] != "untrained":
        recipe = baseline.training_recipe(params, bf16=has_fast_bf16(device))
        train(model, baseline.load_splits(params).train, recipe, device=device)
    return model


def judged_fused(model: nn.Module, params: Params, device: str) -> Values:
    """Merge the adapters: the largest change of a logit, and the merged model on test."""
    test = baseline.load_splits(params).test.first(design.FUSED_SENTENCES)
    probe = {name: tensor.to(device) for name, tensor in test.batch(range(len(test))).items()}
    with torch.no_grad():
        beside = model(**probe).logits  # (B, classes)
        layers = adapters.merge_(model)
        largest = float((model(**probe).logits - beside).abs().max())
    assert largest <= design.LOGIT_TOLERANCE, (
        f"fusing {len(layers)} layers moves a logit by {largest:g}"
    )
    return {"largest": largest, **baseline.judge_on_test(model, params, device)}


# ---- what a step costs --------------------------------------------------------------------------


def step_costs(params: Params, device: str) -> Values:
    """Memory and parameters of each method, counted here; times, from several fresh processes."""
    rows = baseline.load_splits(params).train.batch(range(design.STEP_SENTENCES))
    batch = {name: tensor.to(device) for name, tensor in rows.items()}
    by_method = _by_method(params, device)
    argument = {
        **{"params": dict(params), "device": device, "threads": torch.get_num_threads()},
        "batch": {name: tensor.tolist() for name, tensor in rows.items()},
    }
    plain = models.load_pretrained(str(params["model"]), seed=0)
    with torch.device("meta"):  # shapes without weights
        shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
        tiny = BertForSequenceClassification(BertConfig(**shape, intermediate_size=512))
    return {
        **timing.over_processes(
            f"{__name__}:measure", argument, processes=int(params["processes"] or 1)
        ),
        "counted": {method: step_bytes(model, batch) for method, model in by_method.items()},
        "trainable": {method: adapters.num_trainable(m) for method, m in by_method.items()},
        "parameters": {
            name: [size.num_parameters(model), adapters.nested_sum(model)]
            for name, model in (("this model", plain), ("BERT-tiny", tiny))
        },
    }


def _by_method(params: Params, device: str) -> dict[str, nn.Module]:
    """The model of each method whose step is measured, prepared and untrained."""
    return {method: untrained(params, method).to(device) for method in ("full", "frozen", "lora")}


def measure(argument: Mapping[str, Any]) -> dict[str, Any]:
    """Time steps of the three methods in turn, and forward passes in turn, in this process.

    The first process measures the allocator's peak, too; it is the same in every process.
    """
    keep_freed_pages()
    torch.set_num_threads(int(argument["threads"]))
    params, device = argument["params"], str(argument["device"])
    batch = {name: torch.tensor(rows, device=device) for name, rows in argument["batch"].items()}
    by_method = _by_method(params, device)
    bf16 = has_fast_bf16(device)
    beside, fused = (copy.deepcopy(by_method["lora"]).eval() for _ in range(2))
    adapters.merge_(fused)
    recipe = Recipe(learning_rate=1e-6)
    steps = {
        method: partial(take_step, model, batch, optimizer_of(model.train(), recipe), bf16=bf16)
        for method, model in by_method.items()
    }
    forward = torch.no_grad()(lambda model: model(**batch))
    passes = {"adapters": partial(forward, beside), "fused": partial(forward, fused)}
    budget = {"budget_s": float(params["budget_s"]), "min_samples": design.SAMPLES}
    compare = partial(timing.compare, device=device, **budget)
    times = compare(steps, memory=argument["process"] == 0) | compare(passes)
    return {"measurements": {name: time.to_json() for name, time in times.items()}, "bf16": bf16}


def step_bytes(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, int]:
    """Bytes of weights, moments and saved activations in a step, counted from the tensors."""
    parameters = list(model.parameters())
    learning = sum(p.numel() * p.element_size() for p in parameters if p.requires_grad)
    device = batch["labels"].device.type
    model.train()
    with torch.autocast(device, dtype=torch.bfloat16, enabled=has_fast_bf16(device)):
        saved = saved_for_backward(lambda: model(**batch), exclude=parameters)
    return {
        "weights": sum(p.numel() * p.element_size() for p in parameters),
        "optimizer": 2 * learning,
        "saved": saved,
    }


def saved_for_backward(forward: Callable[[], object], *, exclude: Iterable[Tensor]) -> int:
    """Bytes that autograd keeps from a forward pass for its backward pass.

    Counted at the moment they are saved, each storage once; `exclude` are tensors that exist
    anyway, the parameters. It is no allocator's peak: temporaries of the kernels are not in it.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in exclude}
    saved: dict[int, Tensor] = {}  # kept alive, so that no address is used again

    def save(tensor: Tensor) -> Tensor:
        saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        forward()
    return sum(t.untyped_storage().nbytes() for at, t in saved.items() if at not in known)
