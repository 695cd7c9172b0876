"""Question 0.2: what the graph's inputs change in it; low-rank adapters against full fine-tuning.

Every way of training starts from the same pretrained encoder with the same untrained head and sees
the same sentences in the same order for as many steps. Where a learning rate or a rank is to be
chosen, validation data chooses it.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from madl.logbook import plots, stats
from madl.logbook.drawing import Box, column
from madl.logbook.experiment import (
    Claim,
    Context,
    Drawing,
    Experiment,
    Figure,
    Panel,
    Params,
    Plan,
    Row,
)
from madl.logbook.results import Pending, Records
from madl.training import baseline
from madl.training.baseline import accuracy, outcomes

if TYPE_CHECKING:
    from torch import Tensor, nn

    from madl.training.data import Encoded

ADAPTED = r".*\.(query|key|value|dense)"  # every Linear of the encoder and its pooler
HEAD = r"classifier\..*"  # is new, so it learns in every method
FROZEN = "embeddings"
ALPHA = 16.0  # for every rank: a larger rank gets a smaller scale, so one learning rate fits all
MARGIN = 0.02  # accuracies closer than this count as the same
TOLERANCE = 1e-4  # largest difference of a logit that counts as rounding
PROBE_SENTENCES = 64
STEP_BATCH = 8
EXAMPLE_ROWS = 4  # sentences that the model is captured on

LEFT_OUT = {
    "nothing": (),
    "labels": ("labels",),
    "attention mask": ("attention_mask",),
    "both": ("attention_mask", "labels"),
}

# BERT-tiny's configuration, and the number of parameters that public reports give for it.
TINY = {
    "vocab_size": 30522,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
}
REPORTED_PARAMETERS = 14_480_258


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    ranks = choose(smoke=(2, 4), quick=(4, 32), full=(1, 2, 4, 8, 16, 32, 64))
    rates = {
        "full": choose(smoke=(1e-4,), quick=(1e-4,), full=(5e-5, 1e-4, 2e-4)),
        "frozen": choose(smoke=(1e-4,), quick=(1e-4,), full=(5e-5, 1e-4, 2e-4)),
        "lora": choose(smoke=(2e-3,), quick=(2e-3,), full=(1e-3, 2e-3, 4e-3)),
    }
    budget = choose(smoke=0.02, quick=0.2, full=5.0)
    for seed in range(plan.profile.seeds):
        recipe = baseline.recipe_params(plan, seed)
        base = {k: v for k, v in recipe.items() if k not in ("epochs", "learning_rate")}
        base |= {
            "validation_examples": choose(smoke=32, quick=200, full=None),
            "test_examples": choose(smoke=64, quick=500, full=None),
        }
        tune = {
            "tune_examples": choose(smoke=32, quick=512, full=2048),
            "tune_epochs": 1,
            "tune_batch_size": choose(smoke=16, quick=8, full=16),
        }
        if seed == 0:
            yield {"method": "inputs", **base}
            yield {"method": "costs", **base, "ranks": str(ranks), "budget_s": budget}
        yield {"method": "before", **base}
        for method in ("full", "frozen"):
            for rate in rates[method]:
                yield {"method": method, **base, **tune, "tune_learning_rate": rate}
        for rank in ranks:
            for rate in rates["lora"]:
                fuse = {"rank": rank, "alpha": ALPHA, "judge_fused": rank == max(ranks)}
                yield {"method": "lora", **base, **tune, "tune_learning_rate": rate, **fuse}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    if params["method"] == "inputs":
        return _inputs(params)
    if params["method"] == "costs":
        return _costs(params, ctx.device)
    return _fine_tune(params, ctx.device)


# ---- a case that trains -------------------------------------------------------------------------


def _fine_tune(params: Params, device: str) -> Mapping[str, Any]:
    from madl.compression import lora
    from madl.training.train import train

    method = str(params["method"])
    model = _prepared(params, method, int(params.get("rank") or 0))
    values: dict[str, Any] = {"num_trainable": lora.num_trainable(model)}
    if method != "before":
        examples = baseline.load_splits(params).train.first(int(params["tune_examples"]))
        recipe = baseline.training_recipe(params, prefix="tune_")
        values["tune_losses"] = train(model, examples, recipe, device=device)
    values |= baseline.judge(model, params, device)
    if method == "lora":
        values["fused"] = _fused(model, params, device)
    return values


def _prepared(params: Params, method: str, rank: int) -> "nn.Module":
    """The pretrained model with the parts frozen that this method leaves alone."""
    import torch

    from madl.compression.lora import LoraRule, adapt_
    from madl.training import models

    seed = int(params["seed"])
    model = models.load_pretrained(str(params["model"]), seed=seed)
    if method == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(FROZEN not in name.split("."))
    if method == "lora":
        torch.manual_seed(seed)
        rule = LoraRule(pattern=ADAPTED, rank=rank, alpha=ALPHA)
        adapt_(model, [rule], also_train=HEAD)
    return model


def _fused(model: "nn.Module", params: Params, device: str) -> Mapping[str, Any]:
    """The same model with its adapters in its weights: how far its logits are, and its answers."""
    from madl.compression.lora import merge_

    probe = baseline.load_splits(params).test.first(PROBE_SENTENCES)
    adapted = _logits(model, probe, device)
    names = merge_(model)
    merged = _logits(model, probe, device)
    apart = (merged - adapted).abs().amax(-1)
    return {
        "layers": len(names),
        "largest": float(apart.max()),
        "beyond": int((apart > TOLERANCE).sum()),
        "logit_scale": float(adapted.abs().max()),
        "sentences": len(probe),
        **({"judged": baseline.judge(model, params, device)} if params["judge_fused"] else {}),
    }


def _logits(model: "nn.Module", data: "Encoded", device: str) -> "Tensor":
    import torch

    from madl.training.data import batches_by_length

    model.eval()
    with torch.no_grad():
        return torch.cat(
            [
                model(**{k: v.to(device) for k, v in data.batch(rows).items()}).logits.cpu()
                for rows in batches_by_length(data, 32)
            ]
        )


# ---- the case about inputs ----------------------------------------------------------------------


def _inputs(params: Params) -> Mapping[str, Any]:
    """The graph for each set of inputs, compared with the graph that has them all."""
    from madl import graphs
    from madl.training import models

    model = models.load_pretrained(str(params["model"]), seed=int(params["seed"]))
    test = baseline.load_splits(params).test
    batch = test.batch(range(EXAMPLE_ROWS))
    captured = {
        left_out: graphs.capture(
            model, {k: v for k, v in batch.items() if k not in names}, training=True
        )
        for left_out, names in LEFT_OUT.items()
    }
    nodes = {left_out: graphs.describe(one.graph) for left_out, one in captured.items()}
    everything = nodes["nothing"]
    changes = {left_out: graphs.diff(everything, other) for left_out, other in nodes.items()}
    bare = captured["attention mask"].graph
    attention = [node for node in bare.nodes if graphs.operator_name(node) == FUSED_ATTENTION]
    return {
        "graphs": {
            left_out: {
                "nodes": len(nodes[left_out]),
                **{m: sum(c.mark == m for c in found) for m in ("added", "removed", "rewired")},
                "returns": nodes[left_out][-1].args.strip("()").rstrip(","),
            }
            for left_out, found in changes.items()
        },
        "changes": {name: _near_changes(changes[name]) for name in ("labels", "attention mask")},
        "attention": {
            "nodes": len(attention),
            "masked": sum(node.args[3] is not None for node in attention),
        },
        "padding": _padding(model, test),
    }


FUSED_ATTENTION = "scaled_dot_product_attention"


def _near_changes(changes: Sequence[Any]) -> list[dict[str, Any]]:
    """What changed, what feeds it, and one of each kind of node that uses it.

    Users of a changed size are left out: a size is used everywhere.
    """
    changed = {c.name for c in changes if c.mark != "same"}
    values = {c.name for c in changes if c.name in changed and c.node.operator != "sym_size"}
    sources = {name for c in changes if c.name in changed for name in c.inputs}
    shown = [c for c in changes if c.name in changed | sources and c.node.kind != "get_attr"]
    users: dict[str, list[Any]] = {}
    for c in changes:
        if c.name not in changed | sources and values & set(c.inputs):
            users.setdefault(c.node.operator, []).append(c)
    alike = {same[0].name: len(same) - 1 for same in users.values()}
    return [
        {
            "mark": c.mark,
            "name": c.name,
            "operator": c.node.operator,
            "kind": c.node.kind,
            "inputs": c.inputs,
            "was": c.was,
            "module": c.node.module,
            "shape": c.node.shape,
            "alike": alike.get(c.name, 0),
        }
        for c in changes
        if c in shown or c.name in alike
    ]


def _padding(model: "nn.Module", data: "Encoded") -> Mapping[str, int]:
    """Whose logits move when the mask is left out: sentences with padding, or others too."""
    import torch

    batch = data.batch(range(min(PROBE_SENTENCES, len(data))))
    model.eval()
    with torch.no_grad():
        with_mask = model(**batch).logits
        bare = model(input_ids=batch["input_ids"]).logits
    moved = (with_mask - bare).abs().amax(-1) > TOLERANCE
    padded = batch["attention_mask"].eq(0).any(-1)
    return {
        "padded": int(padded.sum()),
        "padded_moved": int((padded & moved).sum()),
        "whole": int((~padded).sum()),
        "whole_moved": int((~padded & moved).sum()),
    }


# ---- the case about costs -----------------------------------------------------------------------


def _costs(params: Params, device: str) -> Mapping[str, Any]:
    """Step time, interleaved; bytes that a step holds, counted; parameters of two models."""
    from madl.compression import lora
    from madl.machine.timing import compare
    from madl.training import models

    ranks = [int(rank) for rank in str(params["ranks"]).strip("()").split(",") if rank.strip()]
    rows = baseline.load_splits(params).train.batch(range(STEP_BATCH))
    batch = {name: tensor.to(device) for name, tensor in rows.items()}
    variants = {
        "full": ("full", 0),
        "frozen": ("frozen", 0),
        **{f"lora {r}": ("lora", r) for r in ranks},
    }
    prepared = {
        name: _prepared(params, method, rank).to(device)
        for name, (method, rank) in variants.items()
    }
    budget = float(params["budget_s"] or 0)
    held = {name: _held_bytes(model, batch) for name, model in prepared.items()}
    steps = compare(
        {name: _step(model, batch) for name, model in prepared.items()},
        device=device,
        budget_s=budget,
    )
    adapted = prepared[f"lora {max(ranks)}"]
    plain = models.load_pretrained(str(params["model"]), seed=0)
    return {
        "steps": {name: m.to_json() for name, m in steps.items()},
        "held": held,
        "inference": _inference(adapted, batch, device, budget),
        "trainable": {name: lora.num_trainable(model) for name, model in prepared.items()},
        "parameters": {
            "this model": [lora.num_parameters(plain), lora.nested_sum(plain)],
            "BERT-tiny": _tiny_parameters(),
        },
        "tokens": int(batch["input_ids"].numel()),
    }


def _step(model: Any, batch: Mapping[str, "Tensor"]) -> Any:
    import torch

    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-6, fused=True)
    model.train()

    def step() -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _held_bytes(model: Any, batch: Mapping[str, "Tensor"]) -> Mapping[str, int]:
    """What a step has in memory at its fullest: counted from the tensors, no allocator asked."""
    from madl.machine.memory import saved_for_backward

    every = list(model.parameters())
    learning = sum(p.numel() * p.element_size() for p in every if p.requires_grad)
    model.train()
    return {
        "weights": sum(p.numel() * p.element_size() for p in every),
        "gradients": learning,
        "optimizer": 2 * learning,
        "activations": saved_for_backward(lambda: model(**batch), exclude=every),
    }


def _inference(model: Any, batch: Mapping[str, "Tensor"], device: str, budget: float) -> Any:
    """A forward pass with the adapters beside the weights, and in them."""
    import copy

    import torch

    from madl.compression.lora import merge_
    from madl.machine.timing import compare

    fused = copy.deepcopy(model).eval()
    merge_(fused)
    model.eval()

    def forward(module: Any) -> Any:
        def call() -> object:
            with torch.no_grad():
                return module(**batch)

        return call

    timed = compare(
        {"adapters": forward(model), "fused": forward(fused)}, device=device, budget_s=budget
    )
    return {name: m.to_json() for name, m in timed.items()}


def _tiny_parameters() -> list[int]:
    """BERT-tiny by its configuration alone: shapes without weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from madl.compression import lora

    with torch.device("meta"):
        tiny = BertForSequenceClassification(BertConfig(**TINY))
    return [lora.num_parameters(tiny), lora.nested_sum(tiny)]


# ---- reading the records ------------------------------------------------------------------------


def at(records: Records, method: str, rank: int | None = None) -> Records:
    """All seeds of a method, at the learning rate that validation data prefers.

    Raises:
        Pending: a seed is missing.
    """
    found = records.where(method=method)
    if rank is not None:
        found = found.where(rank=rank)
    if found.each("tune_learning_rate"):
        rates = found.each("tune_learning_rate")
        candidates = [found.where(tune_learning_rate=rate) for rate in rates]
        found = max(candidates, key=_validation)
    if not found or len(found) != len(records.where(method="before")):
        raise Pending(f"{method} {rank or ''}")
    return found


def ranks_of(records: Records) -> list[int]:
    found = records.where(method="lora").each("rank")
    if not found:
        raise Pending("no adapter is trained")
    return found


def best_rank(records: Records) -> int:
    """The rank that validation data prefers; of equals the smallest."""
    return max(ranks_of(records), key=lambda rank: (_validation(at(records, "lora", rank)), -rank))


def _validation(records: Records) -> float:
    return sum(r.values["validation_accuracy"] for r in records) / max(len(records), 1)


def _compare(base: Records, other: Records) -> stats.Comparison:
    return stats.compare(outcomes(base), outcomes(other))


def _case(records: Records, method: str) -> Mapping[str, Any]:
    return records.one(method=method).values


# ---- claims -------------------------------------------------------------------------------------


def lora_is_enough(records: Records) -> Claim:
    rank = best_rank(records)
    full, lora = at(records, "full"), at(records, "lora", rank)
    text = (
        f"LoRA of rank {rank} is within {MARGIN * 100:g} points of full fine-tuning: "
        f"{accuracy(lora):.1%} against {accuracy(full):.1%}"
    )
    return _compare(full, lora).within(MARGIN, text)


def trains_few(records: Records) -> Claim:
    costs = _case(records, "costs")
    rank = best_rank(records)
    trainable, total = costs["trainable"], costs["parameters"]["this model"][0]
    lora, frozen = trainable[f"lora {rank}"], trainable["frozen"]
    text = (
        f"At rank {rank}, {lora:,} parameters train, the new head included: {lora / total:.1%} of "
        f"the model's {total:,}. Freezing the embeddings leaves {frozen:,}, {frozen / total:.0%}"
    )
    return stats.counted(frozen / total, lora / total, total).degrades(text)


def lora_learns(records: Records) -> Claim:
    rank = best_rank(records)
    before, lora = at(records, "before"), at(records, "lora", rank)
    text = (
        f"The untrained head gives {accuracy(before):.1%}; the adapter and the head together "
        f"bring it to {accuracy(lora):.1%}"
    )
    return _compare(before, lora).improves(text)


def frozen_is_enough(records: Records) -> Claim:
    full, frozen = at(records, "full"), at(records, "frozen")
    text = (
        f"Freezing the embeddings gives {accuracy(frozen):.1%}, within {MARGIN * 100:g} points "
        f"of training everything"
    )
    return _compare(full, frozen).within(MARGIN, text)


def rank_matters(records: Records) -> Claim:
    low, high = min(ranks_of(records)), max(ranks_of(records))
    a, b = at(records, "lora", low), at(records, "lora", high)
    text = (
        f"Rank {high} is more accurate than rank {low} after the same training: "
        f"{accuracy(b):.1%} against {accuracy(a):.1%}"
    )
    return _compare(a, b).improves(text)


def fused_is_close(records: Records) -> Claim:
    fused = [record.values["fused"] for record in records.where(method="lora")]
    if not fused:
        raise Pending("no adapter is trained")
    n, beyond = sum(f["sentences"] for f in fused), sum(f["beyond"] for f in fused)
    text = (
        f"Fusing moves a logit by at most {max(f['largest'] for f in fused):.1e}, where logits "
        f"reach {max(f['logit_scale'] for f in fused):.1f} and {TOLERANCE:g} is tolerated; "
        f"{beyond} of {n} sentences are beyond"
    )
    return stats.none_of(beyond, n, text)


def fused_answers(records: Records) -> Claim:
    rank = max(ranks_of(records))
    found = at(records, "lora", rank)
    fused = [record.values["fused"]["judged"] for record in found]
    pairs = [
        (a.correct, stats.Outcomes.from_json(b["outcomes"]).correct)
        for a, b in zip(outcomes(found), fused)
    ]
    changed = sum(int((a != b).sum()) for a, b in pairs)
    n = sum(len(a) for a, _ in pairs)
    text = (
        f"The fused model of rank {rank} gives another answer than the model with adapters on "
        f"{changed} of {n:,} test sentences"
    )
    return stats.none_of(changed, n, text)


def step_time(records: Records) -> Claim:
    found = records.one(method="costs")
    steps = found.values["steps"]
    rank = best_rank(records)
    full, lora = steps["full"]["samples_s"], steps[f"lora {rank}"]["samples_s"]
    text = (
        f"LoRA of rank {rank} makes a training step faster than in full: "
        f"{1e3 * median(lora):.0f} ms against {1e3 * median(full):.0f} ms"
    )
    return stats.ratio(full, lora, contention=found.run.contention).improves(text)


def step_memory(records: Records) -> Claim:
    held = _case(records, "costs")["held"]
    rank = best_rank(records)
    full, lora = sum(held["full"].values()), sum(held[f"lora {rank}"].values())
    text = (
        f"A step holds {full / 1e6:.0f} MB in full and {lora / 1e6:.0f} MB with LoRA of rank "
        f"{rank}, counted from its tensors"
    )
    return stats.counted(1.0, lora / full, full).degrades(text)


def fused_time(records: Records) -> Claim:
    found = records.one(method="costs")
    timed = found.values["inference"]
    adapters, fused = timed["adapters"]["samples_s"], timed["fused"]["samples_s"]
    text = (
        f"Fused, a forward pass is faster than with adapters of rank {max(ranks_of(records))}: "
        f"{1e3 * median(fused):.0f} ms against {1e3 * median(adapters):.0f} ms"
    )
    return stats.ratio(adapters, fused, contention=found.run.contention).improves(text)


def nested_sum(records: Records) -> Claim:
    unique, nested = _case(records, "costs")["parameters"]["BERT-tiny"]
    text = (
        f"BERT-tiny's shape has {unique:,} parameters; adding up the listing of its nested "
        f"modules gives {nested:,}, the number that reports quote"
    )
    return stats.none_of(int(nested != REPORTED_PARAMETERS), 1, text)


def default_mask(records: Records) -> Claim:
    values = _case(records, "inputs")
    graph, attention = values["graphs"]["attention mask"], values["attention"]
    text = (
        f"Without the attention mask {graph['removed']} nodes go and {graph['added']} come, but "
        f"{attention['masked']} of {attention['nodes']} attention nodes still take a mask: a "
        "default one is built in the graph"
    )
    return stats.none_of(attention["nodes"] - attention["masked"], attention["nodes"], text)


def loss_goes(records: Records) -> Claim:
    values = _case(records, "inputs")
    graph = values["graphs"]["labels"]
    gone = [c["operator"] for c in values["changes"]["labels"] if c["mark"] == "removed"]
    text = (
        f"Without labels {graph['removed']} nodes go ({', '.join(f'`{name}`' for name in gone)}) "
        f"and {graph['added']} come; the graph returns `{graph['returns']}` alone"
    )
    return stats.none_of(graph["added"], graph["added"] + graph["removed"], text)


def padding_shows(records: Records) -> Claim:
    found = _case(records, "inputs")["padding"]
    text = (
        f"The default mask lets attention see the padding: leaving the mask out moves the logits "
        f"of {found['padded_moved']} of {found['padded']} padded sentences, and of "
        f"{found['whole_moved']} of {found['whole']} that fill their row"
    )
    a = found["whole_moved"] / max(found["whole"], 1)
    b = found["padded_moved"] / max(found["padded"], 1)
    return stats.counted(a, b, found["padded"] + found["whole"]).improves(text)


# ---- figures ------------------------------------------------------------------------------------

NAMES = {"full": "full fine-tuning", "frozen": "embeddings frozen", "lora": "LoRA"}


def accuracy_rows(records: Records) -> Sequence[Row]:
    found = [("lora", rank, at(records, "lora", rank)) for rank in ranks_of(records)]
    found += [(method, None, at(records, method)) for method in ("frozen", "full")]
    before = accuracy(at(records, "before"))
    rows: list[Row] = []
    for method, rank, group in found:
        low, high = stats.accuracy_interval(outcomes(group))
        rows.append(
            {
                "method": NAMES[method],
                "rank": rank,
                "trainable": group[0].values["num_trainable"],
                "accuracy": accuracy(group),
                "accuracy low": low,
                "accuracy high": high,
                "untrained head": before,
            }
        )
    return rows


def draw_accuracy(ax: Any, rows: Sequence[Row]) -> None:
    plots.level(ax, float(rows[0]["untrained head"] or 0), "chance", label="untrained head")
    lora = [row for row in rows if row["rank"] is not None]
    plots.curve(ax, lora, "trainable", "accuracy", "first", label="LoRA, by rank")
    for row in lora:
        ax.annotate(
            str(row["rank"]),
            (row["trainable"], row["accuracy"]),
            textcoords="offset points",
            xytext=(0, 8),
            ha="center",
            color=plots.color("first"),
        )
    for name, role in ((NAMES["frozen"], "third"), (NAMES["full"], "second")):
        row = next(row for row in rows if row["method"] == name)
        middle = float(row["accuracy"] or 0)
        below, above = middle - float(row["accuracy low"] or 0), float(row["accuracy high"] or 0)
        ax.errorbar(
            [row["trainable"]],
            [middle],
            yerr=[[below], [above - middle]],
            color=plots.color(role),
            fmt=plots.ROLES[role].marker,
            capsize=4,
            linewidth=1.8,
            label=name,
        )
    ax.set_xscale("log")
    ax.set_xlabel("parameters that train (log scale)")
    plots.percent_axis(ax, "test accuracy")
    plots.legend(ax)


def accuracy_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['method']}{'' if row['rank'] is None else ' rank ' + str(row['rank'])}: "
        f"{row['trainable']:,} parameters, {row['accuracy']:.1%}"
        for row in rows
    )
    return f"Test accuracy against trainable parameters. {points}."


PARTS = {"weights": "first", "gradients": "second", "optimizer": "fourth", "activations": "third"}
PART_NAMES = {"optimizer": "AdamW's two moments", "activations": "activations for backward"}


def memory_rows(records: Records) -> Sequence[Row]:
    held = _case(records, "costs")["held"]
    ranks = sorted(int(name.split()[1]) for name in held if name.startswith("lora"))
    titles = {"full": NAMES["full"], "frozen": NAMES["frozen"]}
    titles |= {f"lora {rank}": f"LoRA, rank {rank}" for rank in ranks}
    return [
        {"method": title, **{f"{part} (MB)": held[name][part] / 1e6 for part in PARTS}}
        for name, title in titles.items()
    ]


def draw_memory(ax: Any, rows: Sequence[Row]) -> None:
    names = [str(row["method"]).replace(", ", ",\n") for row in rows]
    left = [0.0] * len(rows)
    for part, role in PARTS.items():
        width = [float(row[f"{part} (MB)"] or 0) for row in rows]
        label = PART_NAMES.get(part, part)
        ax.barh(names, width, left=left, color=plots.color(role), height=0.6, label=label)
        left = [a + b for a, b in zip(left, width)]
    for position, total in enumerate(left):
        ax.text(total, position, f" {total:.0f}", va="center")
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("held by a training step (MB)")
    plots.legend(ax)


def memory_alt(rows: Sequence[Row]) -> str:
    return "Megabytes that a training step holds. " + "; ".join(
        f"{row['method']}: " + ", ".join(f"{p} {row[f'{p} (MB)']:.0f}" for p in PARTS)
        for row in rows
    )


CHANGE_COLUMNS = ("mark", "name", "kind", "operator", "module", "shape", "alike")


def change_rows(records: Records) -> Sequence[Row]:
    changes = _case(records, "inputs")["changes"]
    return [
        {
            "left out": left_out,
            **{key: change[key] for key in CHANGE_COLUMNS},
            "inputs": " ".join(change["inputs"]),
            "inputs lost": " ".join(change["was"]),
        }
        for left_out, found in changes.items()
        for change in found
    ]


SIGNS = {"added": "+ ", "removed": "− ", "rewired": "~ ", "same": ""}


def change_panels(rows: Sequence[Row]) -> Sequence[Panel]:
    panels: list[Panel] = []
    for left_out in dict.fromkeys(str(row["left out"]) for row in rows):
        mine = [row for row in rows if row["left out"] == left_out]
        counts = [(m, sum(row["mark"] == m for row in mine)) for m in SIGNS if m != "same"]
        title = f"Without the {left_out}: " + ", ".join(f"{n} {m}" for m, n in counts)
        svg = column([_change_box(row) for row in mine], label=title)
        panels.append(Panel(title=title, svg=svg, folded=False))
    return panels


def _change_box(row: Row) -> Box:
    lost = ", ".join(name.lstrip("-") for name in str(row["inputs lost"]).split())
    place = f"and {row['alike']} more alike" if row["alike"] else str(row["module"])
    details = [str(row["name"]).lstrip("-"), f"was fed by {lost}" if lost else place]
    return Box(
        name=str(row["name"]),
        title=SIGNS[str(row["mark"])] + str(row["operator"]).replace("scaled_dot_product_", "sdp_"),
        detail=" · ".join(text for text in details if text),
        note=str(row["shape"]),
        look="op" if row["mark"] == "same" else str(row["mark"]),
        inputs=tuple(str(row["inputs"]).split()),
    )


def change_alt(rows: Sequence[Row]) -> str:
    return "; ".join(f"{panel.title}" for panel in change_panels(rows))


# ---- tables -------------------------------------------------------------------------------------


def inputs_table(records: Records) -> Sequence[Row]:
    found = _case(records, "inputs")["graphs"]
    return [
        {
            "left out": name,
            **{key: found[name][key] for key in ("nodes", "added", "removed", "rewired")},
            "returns": found[name]["returns"],
        }
        for name in LEFT_OUT
    ]


def methods_table(records: Records) -> Sequence[Row]:
    costs = _case(records, "costs")
    total = costs["parameters"]["this model"][0]
    named = [("full", "full", None), ("frozen", "frozen", None)]
    named += [(f"lora {rank}", "lora", rank) for rank in ranks_of(records)]
    rows: list[Row] = []
    for key, method, rank in named:
        found = at(records, method, rank)
        low, high = stats.accuracy_interval(outcomes(found))
        rows.append(
            {
                "method": NAMES[method] + (f", rank {rank}" if rank else ""),
                "trains": costs["trainable"][key],
                "of all": f"{costs['trainable'][key] / total:.1%}",
                "test accuracy": f"{accuracy(found):.1%} [{low:.1%},\u00a0{high:.1%}]",
                "validation": f"{_validation(found):.1%}",
                "step (ms)": round(1e3 * median(costs["steps"][key]["samples_s"]), 1),
                "held (MB)": round(sum(costs["held"][key].values()) / 1e6),
            }
        )
    return rows


def counts_table(records: Records) -> Sequence[Row]:
    counts = _case(records, "costs")["parameters"]
    return [
        {"model": name, "parameters": unique, "sum over nested modules": nested}
        for name, (unique, nested) in counts.items()
    ]


experiment = Experiment(
    title="Graph inputs, and LoRA adapters",
    params=params,
    run=run,
    timed=lambda params: params["method"] == "costs",
    claims={
        "lora_is_enough": lora_is_enough,
        "trains_few": trains_few,
        "fused_is_close": fused_is_close,
        "fused_answers": fused_answers,
        "default_mask": default_mask,
        "loss_goes": loss_goes,
        "padding_shows": padding_shows,
        "lora_learns": lora_learns,
        "frozen_is_enough": frozen_is_enough,
        "rank_matters": rank_matters,
        "step_time": step_time,
        "step_memory": step_memory,
        "fused_time": fused_time,
        "nested_sum": nested_sum,
    },
    figures={
        "accuracy": Figure(
            caption="What training more parameters buys after the same sentences. Numbers at the "
            "points are ranks; bands and bars are intervals of the test accuracy; the axis is cut.",
            rows=accuracy_rows,
            draw=draw_accuracy,
            alt=accuracy_alt,
        ),
        "changes": Drawing(
            caption="What leaves the captured graph with an input. Orange with a minus goes, green "
            "with a plus comes, dashed with a tilde stays and is fed by another node; grey boxes "
            "are neighbours that stay as they are. B is the batch, T its longest sentence.",
            rows=change_rows,
            panels=change_panels,
            alt=change_alt,
        ),
        "memory": Figure(
            caption="Gradients and optimizer state go with the parameters that train; weights and "
            "most of the activations stay.",
            rows=memory_rows,
            draw=draw_memory,
            alt=memory_alt,
        ),
    },
    tables={"inputs": inputs_table, "methods": methods_table, "counts": counts_table},
)
