"""Smaller BERTs cut out of a trained one: layers, heads, hidden width and FFN width by importance.

What is kept keeps its trained weights, so a short training says something about the shape. A head
is kept or dropped whole, with its rows of query, key and value and its columns of the output
projection; so heads and hidden width are free of each other, which `BertConfig` alone does not
allow. One importance, measured once on a few sentences, serves every shape.

A Linear layer that is square in the whole model may be an identity instead, kind by kind. It is cut
like the layer in whose place it stands: a channel that is on both sides passes, one that is on its
output alone is zero. So it means the same at every shape.

Source: width by activations, Muralidharan et al. 2024, arXiv:2407.14679; layers by how much they
turn their input, Men et al. 2024, arXiv:2403.03853.
Shapes: hidden states (B, T, D), heads' outputs (B, T, H · head size), FFN activations (B, T, F).
Not handled: encoders other than BERT's.
"""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.errors import MadlError

# Linear layers that are square in every BERT, as many outputs as inputs. Each but the pooler stands
# once in every layer of the encoder.
KINDS = ("query", "key", "value", "attention_output", "pooler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of an encoder, in the fields of `BertConfig`."""

    num_hidden_layers: int
    num_attention_heads: int
    hidden_size: int
    intermediate_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """How much each part does on the sentences it was measured on; only the order counts.

    Shapes: layers (L), heads (L, H), hidden (D), intermediate (L, F).
    """

    layers: Tensor
    heads: Tensor
    hidden: Tensor
    intermediate: Tensor


def shape_of(model: nn.Module) -> Shape:
    """The shape of a whole BERT classifier.

    Raises:
        MadlError: the model is not a BERT.
    """
    layers = _layers(model)
    return Shape(
        num_hidden_layers=len(layers),
        num_attention_heads=layers[0].attention.self.num_attention_heads,
        hidden_size=layers[0].output.dense.out_features,
        intermediate_size=layers[0].intermediate.dense.out_features,
    )


def _bert(model: nn.Module) -> Any:  # transformers is only partly typed
    bert = getattr(model, "bert", None)
    if bert is None:
        raise MadlError(
            f"a {type(model).__name__} has no BERT encoder to cut; use a BERT model (--model)"
        )
    return bert


def _layers(model: nn.Module) -> Any:
    return _bert(model).encoder.layer


@torch.no_grad()
def importance(model: nn.Module, batch: Mapping[str, Tensor]) -> Importance:
    """Measure on one batch what each layer, head, hidden channel and FFN neuron does."""
    layers = _layers(model)
    seen: dict[str, Tensor] = {}
    hooks = [hook for i, layer in enumerate(layers) for hook in _watch(layer, i, seen)]
    norms = [module for module in _bert(model).modules() if isinstance(module, nn.LayerNorm)]
    hooks += [
        norm.register_forward_hook(_keep_output(f"norm{i}", seen)) for i, norm in enumerate(norms)
    ]
    model.eval()(**batch)
    for hook in hooks:
        hook.remove()
    words = batch["attention_mask"].bool()  # (B, T)
    values = {name: value[words] for name, value in seen.items()}  # (words, …)
    each = range(len(layers))
    return Importance(
        layers=torch.stack(
            [1 - F.cosine_similarity(values[f"in{i}"], values[f"out{i}"]).mean() for i in each]
        ),
        heads=torch.stack([_head_outputs(layers[i].attention, values[f"heads{i}"]) for i in each]),
        hidden=torch.stack([values[f"norm{i}"].abs().mean(0) for i in range(len(norms))]).sum(0),
        intermediate=torch.stack(
            [
                values[f"ffn{i}"].abs().mean(0) * layers[i].output.dense.weight.norm(dim=0)
                for i in each
            ]
        ),
    )


def _watch(layer: Any, i: int, seen: dict[str, Tensor]) -> list[Any]:
    def on_layer(module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        seen[f"in{i}"] = inputs[0]
        seen[f"out{i}"] = output if isinstance(output, Tensor) else output[0]

    def on_input(name: str) -> Any:
        def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen[name] = inputs[0]

        return keep

    return [
        layer.register_forward_hook(on_layer),
        layer.attention.output.dense.register_forward_pre_hook(on_input(f"heads{i}")),
        layer.output.dense.register_forward_pre_hook(on_input(f"ffn{i}")),
    ]


def _keep_output(name: str, seen: dict[str, Tensor]) -> Any:
    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[name] = output

    return keep


def _head_outputs(attention: Any, x: Tensor) -> Tensor:
    """Mean size of what each head adds to the residual stream; x (words, H · head size)."""
    size = attention.self.attention_head_size
    weights = attention.output.dense.weight.split(size, dim=1)
    parts = [F.linear(part, w) for part, w in zip(x.split(size, dim=1), weights)]
    return torch.stack([part.norm(dim=1).mean() for part in parts])


def most_important(scores: Tensor, count: int) -> Tensor:
    """The indices of the highest scores, of equal ones the first, in ascending order."""
    order = scores.argsort(descending=True, stable=True)
    return order[:count].sort().values


def cut(
    model: nn.Module, shape: Shape, scores: Importance, identities: Collection[str] = ()
) -> nn.Module:
    """A copy of the model in that shape, made of its most important parts.

    `identities` names the `KINDS` of Linear layers that are identities in it.

    Raises:
        MadlError: a size that is not between one and the model's own, or an unknown kind.
    """
    for kind in identities:
        if kind not in KINDS:
            raise MadlError(f"a layer {kind!r} cannot be an identity; known: {', '.join(KINDS)}")
    whole = shape_of(model)
    for field in Shape.__dataclass_fields__:
        wanted, most = getattr(shape, field), getattr(whole, field)
        if not 1 <= wanted <= most:
            raise MadlError(f"{field} is from 1 to the model's own {most}, got {wanted}")
    tables = [part for part in _bert(model).embeddings.children() if isinstance(part, nn.Embedding)]
    small: Any = copy.deepcopy(model, {id(table): table for table in tables})  # `_cut_ends` copies
    kept_layers = most_important(scores.layers, shape.num_hidden_layers).tolist()
    channels = most_important(scores.hidden, shape.hidden_size)
    layers = [_layers(small)[i] for i in kept_layers]
    for i, layer in zip(kept_layers, layers):
        heads = most_important(scores.heads[i], shape.num_attention_heads)
        neurons = most_important(scores.intermediate[i], shape.intermediate_size)
        _cut_layer(layer, channels, heads, neurons, identities)
    small.bert.encoder.layer = nn.ModuleList(layers)
    _cut_ends(small, channels, identities)
    for field in Shape.__dataclass_fields__:
        setattr(small.config, field, getattr(shape, field))
    return small


def _cut_layer(
    layer: Any, channels: Tensor, heads: Tensor, neurons: Tensor, identities: Collection[str]
) -> None:
    attention, size = layer.attention, layer.attention.self.attention_head_size
    rows = (heads[:, None] * size + torch.arange(size)).flatten()
    for name in ("query", "key", "value"):
        part = _identity if name in identities else _part
        setattr(attention.self, name, part(getattr(attention.self, name), rows, channels))
    attention.self.num_attention_heads = len(heads)
    attention.self.all_head_size = len(rows)
    part = _identity if "attention_output" in identities else _part
    attention.output.dense = part(attention.output.dense, channels, rows)
    layer.intermediate.dense = _part(layer.intermediate.dense, neurons, channels)
    layer.output.dense = _part(layer.output.dense, channels, neurons)
    for block in (attention.output, layer.output):
        block.LayerNorm = _part_of_norm(block.LayerNorm, channels)


def _cut_ends(model: Any, channels: Tensor, identities: Collection[str]) -> None:
    embeddings = model.bert.embeddings
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        table: nn.Embedding = getattr(embeddings, name)
        weight = table.weight.detach()[:, channels].clone()
        padding = table.padding_idx
        part = nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=padding)
        setattr(embeddings, name, part)
    embeddings.LayerNorm = _part_of_norm(embeddings.LayerNorm, channels)
    pooled = _identity if "pooler" in identities else _part
    model.bert.pooler.dense = pooled(model.bert.pooler.dense, channels, channels)
    classes = torch.arange(model.classifier.out_features)
    model.classifier = _part(model.classifier, classes, channels)


def _part(linear: nn.Linear, outputs: Tensor, inputs: Tensor) -> nn.Linear:
    part = nn.Linear(len(inputs), len(outputs), device="meta")  # nothing is drawn
    part.weight = nn.Parameter(linear.weight.detach()[outputs][:, inputs].clone())
    part.bias = nn.Parameter(linear.bias.detach()[outputs].clone())
    return part


class Identity(nn.Module):
    """Passes channels on, each to its place; an output whose channel is not among them is zero."""

    def __init__(self, outputs: Tensor, inputs: Tensor) -> None:
        super().__init__()
        place = {channel: i for i, channel in enumerate(inputs.tolist())}
        source = [place.get(channel, len(inputs)) for channel in outputs.tolist()]
        self.source: Tensor
        self.register_buffer("source", torch.tensor(source))  # len(inputs): the zero behind them

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 1)).index_select(-1, self.source)  # (..., inputs) → (..., outputs)


def _identity(linear: nn.Linear, outputs: Tensor, inputs: Tensor) -> Identity:
    if linear.in_features != linear.out_features:
        raise MadlError(f"{linear} is not square, so it cannot be an identity")
    return Identity(outputs, inputs)


def _part_of_norm(norm: nn.LayerNorm, channels: Tensor) -> nn.LayerNorm:
    part = nn.LayerNorm(len(channels), eps=norm.eps)
    part.weight = nn.Parameter(norm.weight.detach()[channels].clone())
    part.bias = nn.Parameter(norm.bias.detach()[channels].clone())
    return part
