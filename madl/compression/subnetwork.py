"""Smaller encoders cut out of a trained one: layers, heads, hidden and FFN width by importance.

What is kept keeps its trained weights, so a short training says something about the shape. A head
is kept or dropped whole, with its rows of query, key and value and its columns of the output
projection; so the number of heads and the hidden width can be chosen independently, which a
configuration alone does not allow. One importance, measured once on a few sentences, serves every
shape.

A Linear layer that is square in the whole model may be an identity instead, kind by kind. It is cut
like the layer in whose place it stands: a channel that is on both sides passes, one that is on its
output alone is zero. So it means the same at every shape.

Source: width by activations, Muralidharan et al. 2024, arXiv:2407.14679; layers by how much they
turn their input, Men et al. 2024, arXiv:2403.03853.
Shapes: hidden states (B, T, D), heads' outputs (B, T, H · head size), FFN activations (B, T, F).
Not handled: encoders whose blocks are not BERT's six Linear layers (see `roles`), or share weights.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.compression.quantize import named_linears, set_module_
from madl.compression.roles import SQUARE_KINDS, role
from madl.errors import MadlError

BLOCK = ("query", "key", "value", "output", "up", "down")  # the Linear layers of a block, by role
_KIND_OF = {"query": "query", "key": "key", "value": "value", "output": "attention_output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of an encoder, in BERT's names for it."""

    num_hidden_layers: int
    num_attention_heads: int
    hidden_size: int
    intermediate_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """Scores of a model's parts, measured on some sentences; only their order counts.

    Shapes: layers (L), heads (L, H), hidden (D), intermediate (L, F).
    """

    layers: Tensor
    heads: Tensor
    hidden: Tensor
    intermediate: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """The blocks of a classifier that can be cut, and the modules around them.

    `linear[i][role]` is the name, within block i, of the Linear layer with that role.
    """

    path: str  # name of the list of blocks in the model
    blocks: nn.ModuleList
    linear: Sequence[Mapping[str, str]]
    around: Mapping[str, nn.Module]  # modules with parameters outside of all blocks, by name

    def layer(self, block: int, role: str) -> nn.Linear:
        """The Linear layer with that role in that block."""
        linear = self.blocks[block].get_submodule(self.linear[block][role])
        assert isinstance(linear, nn.Linear)
        return linear

    def attention(self, block: int) -> Any:
        """The module of that block that splits query, key and value into heads."""
        return self.blocks[block].get_submodule(self.linear[block]["query"].rpartition(".")[0])

    @property
    def shape(self) -> Shape:
        first = self.layer(0, "query")
        return Shape(
            num_hidden_layers=len(self.blocks),
            num_attention_heads=first.out_features // self.attention(0).attention_head_size,
            hidden_size=first.in_features,
            intermediate_size=self.layer(0, "up").out_features,
        )


def encoder_of(model: nn.Module) -> Encoder:
    """The encoder of a classifier, found by the roles of its layers.

    Raises:
        MadlError: blocks that are not BERT's or share weights, or other modules that cannot be cut.
    """
    lists = [(path, m) for path, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    fitting: list[tuple[str, nn.ModuleList, list[dict[str, str]]]] = []
    others: Collection[str] = ()
    for path, blocks in lists:
        linear = [_linear_by_role(block) for block in blocks]
        if linear and all(sorted(roles) == sorted(BLOCK) for roles in linear):
            fitting.append((path, blocks, linear))
        elif linear and not fitting:
            others = others or [role for role in linear[0] if role not in BLOCK]
    if not fitting:
        has = f" but have {' and '.join(others)}" if others else ""
        raise _uncut(model, f"its blocks are not made of {', '.join(BLOCK)}{has}")
    path, blocks, linear = fitting[-1]  # the innermost
    stated = getattr(getattr(model, "config", None), "num_hidden_layers", len(blocks))
    if stated != len(blocks):
        raise _uncut(model, f"its {stated} layers share the weights of {len(blocks)}")
    around = {
        name: module
        for name, module in model.named_modules()
        if not name.startswith(f"{path}.") and [*module.parameters(recurse=False)]
    }
    encoder = Encoder(path=path, blocks=blocks, linear=linear, around=around)
    words = cast("Any", model).get_input_embeddings()
    home = next(name for name, module in around.items() if module is words).rpartition(".")[0]
    for name, module in around.items():
        if not isinstance(module, nn.Embedding | nn.LayerNorm | nn.Linear):
            raise _uncut(model, f"{name} is a {type(module).__name__}")
        if isinstance(module, nn.Embedding) and name.rpartition(".")[0] != home:
            raise _uncut(model, f"its layers share the table {name}")
    return encoder


def _linear_by_role(block: nn.Module) -> dict[str, str]:
    """Role → name within the block of each Linear layer."""
    return {role(name): name for name in named_linears(block)}


def _uncut(model: nn.Module, why: str) -> MadlError:
    """The error that says why a model's encoder cannot be cut."""
    family = type(model).__name__.removesuffix("ForSequenceClassification")
    return MadlError(f"the encoder of {family} cannot be cut ({why}); give a BERT-like one")


def shape_of(model: nn.Module) -> Shape:
    """The shape of a whole classifier.

    Raises:
        MadlError: its encoder cannot be cut.
    """
    return encoder_of(model).shape


@torch.no_grad()
def importance(model: nn.Module, batch: Mapping[str, Tensor]) -> Importance:
    """The importance of every layer, head, hidden channel and FFN neuron, measured on one batch.

    Layers count by how much they turn their input, all others by the size of what they contribute.
    """
    encoder = encoder_of(model)
    each = range(len(encoder.blocks))
    norms = _norms(model, encoder.shape.hidden_size)
    seen: dict[str, Tensor] = {}  # (B, T, …), of these modules:
    inputs = {
        **{f"in{i}": encoder.blocks[i] for i in each},
        **{f"heads{i}": encoder.layer(i, "output") for i in each},
        **{f"ffn{i}": encoder.layer(i, "down") for i in each},
    }
    outputs = {
        **{f"out{i}": encoder.blocks[i] for i in each},
        **{f"norm{i}": norm for i, norm in enumerate(norms)},
    }
    hooks = [
        *(m.register_forward_hook(_keep(name, seen, output=False)) for name, m in inputs.items()),
        *(m.register_forward_hook(_keep(name, seen, output=True)) for name, m in outputs.items()),
    ]
    model.eval()(**batch)
    for hook in hooks:
        hook.remove()
    words = batch["attention_mask"].bool()  # (B, T)
    values = {name: value[words] for name, value in seen.items()}  # (words, …)
    turns = [1 - F.cosine_similarity(values[f"in{i}"], values[f"out{i}"]).mean() for i in each]
    neurons = [
        values[f"ffn{i}"].abs().mean(0) * encoder.layer(i, "down").weight.norm(dim=0) for i in each
    ]
    return Importance(
        layers=torch.stack(turns),
        heads=torch.stack([_head_outputs(encoder, i, values[f"heads{i}"]) for i in each]),
        hidden=torch.stack([values[f"norm{i}"].abs().mean(0) for i in range(len(norms))]).sum(0),
        intermediate=torch.stack(neurons),
    )


def _norms(model: Any, width: int) -> list[nn.LayerNorm]:
    """The LayerNorms of the encoder's hidden states, of that width; not those of the head."""
    norms = (module for module in model.base_model.modules() if isinstance(module, nn.LayerNorm))
    return [norm for norm in norms if norm.normalized_shape == (width,)]


def _keep(name: str, seen: dict[str, Tensor], *, output: bool) -> Callable[..., None]:
    """A hook that keeps a module's output, or its (first) input, in `seen[name]`."""

    def hook(module: nn.Module, arguments: tuple[Tensor, ...], result: Any) -> None:
        value = result if output else arguments
        seen[name] = value if isinstance(value, Tensor) else value[0]

    return hook


def _head_outputs(encoder: Encoder, i: int, x: Tensor) -> Tensor:
    """(H): the mean size of what each head of block i adds; x is (words, H · head size)."""
    size = encoder.attention(i).attention_head_size
    weights = encoder.layer(i, "output").weight.split(size, dim=1)
    parts = [F.linear(part, w) for part, w in zip(x.split(size, dim=1), weights)]
    return torch.stack([part.norm(dim=1).mean() for part in parts])


def most_important(scores: Tensor, count: int) -> Tensor:
    """The indices of the `count` highest scores, of equal ones the first, in ascending order."""
    order = scores.argsort(descending=True, stable=True)
    return order[:count].sort().values


def cut(
    model: nn.Module, shape: Shape, scores: Importance, identities: Collection[str] = ()
) -> nn.Module:
    """A copy of the model in that shape, made of its most important parts.

    `identities` names the `SQUARE_KINDS` of Linear layers that are identities in it.

    Raises:
        MadlError: a size that is not between one and the model's own, or an unknown kind.
    """
    for kind in identities:
        if kind not in SQUARE_KINDS:
            raise MadlError(
                f"a layer {kind!r} cannot be an identity; known: {', '.join(SQUARE_KINDS)}"
            )
    encoder = encoder_of(model)
    whole = encoder.shape
    for field in Shape.__dataclass_fields__:
        wanted, most = getattr(shape, field), getattr(whole, field)
        if not 1 <= wanted <= most:
            raise MadlError(f"{field} is from 1 to the model's own {most}, got {wanted}")
    tables = [part for part in encoder.around.values() if isinstance(part, nn.Embedding)]
    small: Any = copy.deepcopy(model, {id(table): table for table in tables})  # `_cut_around`
    copied = replace(encoder, blocks=small.get_submodule(encoder.path))
    layers = most_important(scores.layers, shape.num_hidden_layers).tolist()
    channels = most_important(scores.hidden, shape.hidden_size)
    for i in layers:
        heads = most_important(scores.heads[i], shape.num_attention_heads)
        neurons = most_important(scores.intermediate[i], shape.intermediate_size)
        _cut_block(copied, i, channels, heads, neurons, identities)
    _cut_around(small, encoder, channels, identities)
    set_module_(small, encoder.path, nn.ModuleList([copied.blocks[i] for i in layers]))
    for field in Shape.__dataclass_fields__:
        setattr(small.config, field, getattr(shape, field))
    return small


def _cut_block(
    encoder: Encoder,
    i: int,
    channels: Tensor,
    heads: Tensor,
    neurons: Tensor,
    identities: Collection[str],
) -> None:
    """Reduce block i of the encoder, in place, to these channels, heads and FFN neurons."""
    block, attention = encoder.blocks[i], encoder.attention(i)
    size, width = attention.attention_head_size, encoder.layer(i, "query").in_features
    rows = (heads[:, None] * size + torch.arange(size)).flatten()
    cuts = {
        **dict.fromkeys(("query", "key", "value"), (rows, channels)),
        **{"output": (channels, rows), "up": (neurons, channels), "down": (channels, neurons)},
    }
    for role_, name in encoder.linear[i].items():
        part = _identity if _KIND_OF.get(role_) in identities else _part
        set_module_(block, name, part(encoder.layer(i, role_), *cuts[role_]))
    for name in ("num_attention_heads", "n_heads"):
        if hasattr(attention, name):
            setattr(attention, name, len(heads))
    if hasattr(attention, "all_head_size"):
        attention.all_head_size = len(rows)
    for name, norm in [*block.named_modules()]:
        if isinstance(norm, nn.LayerNorm) and norm.normalized_shape == (width,):
            set_module_(block, name, _part_of_norm(norm, channels))


def _cut_around(
    small: nn.Module, encoder: Encoder, channels: Tensor, identities: Collection[str]
) -> None:
    """Keep only `channels` of the hidden width in the modules around the blocks, in place.

    Embeddings, norms and Linear layers of the copy `small` whose size is the hidden width are cut.
    Where `identities` name the kind "pooler", the pooler becomes an identity.
    """
    width = encoder.shape.hidden_size
    for name, module in encoder.around.items():
        if isinstance(module, nn.Embedding) and module.embedding_dim == width:
            weight = module.weight.detach()[:, channels].clone()
            padding = module.padding_idx
            table = nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=padding)
            set_module_(small, name, table)
        elif isinstance(module, nn.LayerNorm) and module.normalized_shape == (width,):
            set_module_(small, name, _part_of_norm(module, channels))
        elif isinstance(module, nn.Linear):
            sides = (module.out_features, module.in_features)
            parts = [channels if side == width else torch.arange(side) for side in sides]
            is_identity = role(name) == "pooler" and "pooler" in identities
            set_module_(small, name, (_identity if is_identity else _part)(module, *parts))


def _part(linear: nn.Linear, outputs: Tensor, inputs: Tensor) -> nn.Linear:
    """A Linear with the weights and biases of these outputs and inputs of another."""
    part = nn.Linear(len(inputs), len(outputs), device="meta")  # nothing is drawn
    part.weight = nn.Parameter(linear.weight.detach()[outputs][:, inputs].clone())
    part.bias = None  # pyright: ignore[reportAttributeAccessIssue]
    if linear.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
        part.bias = nn.Parameter(linear.bias.detach()[outputs].clone())
    return part


class Identity(nn.Module):
    """Passes channels on to their places; an output channel that is not an input is zero."""

    def __init__(self, outputs: Tensor, inputs: Tensor) -> None:
        super().__init__()
        place = {channel: i for i, channel in enumerate(inputs.tolist())}
        source = [place.get(channel, len(inputs)) for channel in outputs.tolist()]
        self.source: Tensor
        self.register_buffer("source", torch.tensor(source))  # len(inputs): the zero behind them

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 1)).index_select(-1, self.source)  # (..., inputs) → (..., outputs)


def _identity(linear: nn.Linear, outputs: Tensor, inputs: Tensor) -> Identity:
    """An identity between these channels. Raises MadlError: the Linear there is not square."""
    if linear.in_features != linear.out_features:
        raise MadlError(f"{linear} is not square, so it cannot be an identity")
    return Identity(outputs, inputs)


def _part_of_norm(norm: nn.LayerNorm, channels: Tensor) -> nn.LayerNorm:
    """A LayerNorm with the parameters of these channels of another."""
    part = nn.LayerNorm(len(channels), eps=norm.eps, bias=norm.bias is not None)  # pyright: ignore
    for name, parameter in norm.named_parameters():
        setattr(part, name, nn.Parameter(parameter.detach()[channels].clone()))
    return part
