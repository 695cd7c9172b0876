"""Pretrained classifiers and their checkpoints: safetensors only, no pickles, no code."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from madl import assets
from madl.errors import MadlError, first_line
from madl.training import outside
from madl.training.workloads import unpin

NUM_LABELS = 2
SHAPES: dict[str, dict[str, Any]] = {  # of presets, as their `config.json` says
    "all-MiniLM-L6-v2": {
        **{"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12},
        **{"intermediate_size": 1536, "vocab_size": 30522, "max_position_embeddings": 512},
    }
}


def _source(model: str) -> str:
    """The folder or hub id that a model's name stands for."""
    return str(assets.fetch(model)) if model in assets.ASSETS else unpin(model)


def load_pretrained(model: str, *, seed: int) -> nn.Module:
    """The pretrained encoder with a new classification head, drawn from `seed`.

    A head that the pretrained model has, for this task or another, is replaced.

    Raises:
        MadlError: no such model, or it cannot be had.
    """
    return load_with_new_head(model, seed=seed)[0]


def load_with_new_head(model: str, *, seed: int) -> tuple[nn.Module, list[str]]:
    """`load_pretrained`, and the names of the parameters of a pretrained head that was replaced."""
    source = _source(model)
    if model not in assets.ASSETS and Path(source).is_dir():
        outside.check_model(Path(source))
    torch.manual_seed(seed)
    loaded, info = _load(
        source, ignore_mismatched_sizes=True, output_loading_info=True, problem_type=None
    )
    mismatched = [name for name, *_ in info["mismatched_keys"]]
    trained = [name for name in head_of(loaded) if name not in (*info["missing_keys"], *mismatched)]
    if trained:
        torch.manual_seed(seed)
        new = _auto().from_config(loaded.config)
        with torch.no_grad():
            for name in trained:
                loaded.get_parameter(name).copy_(new.get_parameter(name))
    return loaded, [*trained, *mismatched]


def head_of(model: Any) -> list[str]:
    """The names of the parameters outside the encoder."""
    encoder = f"{model.base_model_prefix}."
    return [name for name, _ in model.named_parameters() if not name.startswith(encoder)]


def longest_input(model: str) -> int | None:
    """The number of tokens that a model has positions for; None: it does not say.

    Raises:
        MadlError: no such model, or it cannot be had.
    """
    if model in SHAPES:
        return SHAPES[model]["max_position_embeddings"]
    import transformers

    config = _from_pretrained(transformers.AutoConfig, _source(model))
    with torch.device("meta"):  # shapes without weights
        empty: Any = _auto().from_config(config)
    # a table with an entry for padding begins to count behind it
    positions = [
        table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
        for name, table in empty.named_modules()
        if isinstance(table, nn.Embedding) and name.endswith("position_embeddings")
    ]
    stated = getattr(config, "max_position_embeddings", None)
    return min([*positions, *([stated] if stated else [])], default=None)


def with_random_weights(model: str, *, seed: int) -> nn.Module:
    """A classifier to be timed: of a preset nothing is fetched, its weights are random.

    Any other model has its pretrained weights.

    Raises:
        MadlError: no such model, or it cannot be had.
    """
    import transformers

    shape = SHAPES.get(model)
    torch.manual_seed(seed)
    if shape is not None:
        return _auto().from_config(transformers.BertConfig(**shape))  # two labels are its default
    return load_pretrained(model, seed=seed)


def load_checkpoint(folder: Path) -> nn.Module:
    """A classifier that `save_checkpoint` wrote."""
    return _load(str(folder))


def save_checkpoint(model: nn.Module, folder: Path) -> None:
    """Write configuration and weights in the hub's layout."""
    pretrained: Any = model  # a PreTrainedModel; transformers is only partly typed
    pretrained.save_pretrained(folder)


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a model. Raises MadlError: there is none, or one that cannot be used."""
    import transformers

    source = _source(model)
    tokenizer = _from_pretrained(transformers.AutoTokenizer, source)
    outside.check_tokenizer(tokenizer, source)
    return tokenizer


def _auto() -> Any:  # transformers is only partly typed
    import transformers

    return transformers.AutoModelForSequenceClassification


def _load(source: str, **further: Any) -> Any:
    """A classifier with two labels in float32, from a folder or the hub; safetensors only."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = {"num_labels": NUM_LABELS, "use_safetensors": True, "dtype": torch.float32}
    return _from_pretrained(_auto(), source, **options, **further)


def _from_pretrained(kind: Any, source: str, **options: Any) -> Any:
    """`kind.from_pretrained(source)`, with no code of its own. Raises MadlError: it fails."""
    from safetensors import SafetensorError

    if not Path(source).is_dir():
        outside.prepare_hub()
    try:
        return kind.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise MadlError(
            f"cannot load {source} ({first_line(error)}); "
            "check the name and the network, or give a folder with --model"
        ) from error
