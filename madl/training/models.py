"""Pretrained classifiers and their checkpoints: safetensors only, no pickles, no code."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from madl import assets
from madl.errors import MadlError
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
    return str(assets.fetch(model)) if model in assets.ASSETS else unpin(model)


def load_pretrained(model: str, *, seed: int) -> nn.Module:
    """The pretrained encoder with a new classification head, drawn from `seed`.

    Raises:
        MadlError: no such model, or it cannot be had.
    """
    source = _source(model)
    if model not in assets.ASSETS and Path(source).is_dir():
        outside.check_model(Path(source))
    torch.manual_seed(seed)
    return _load(source)


def with_random_weights(model: str, *, seed: int) -> nn.Module:
    """The same classifier with weights that are drawn, to be timed: a preset's without fetching it.

    Raises:
        MadlError: no such model, or it cannot be had.
    """
    import transformers

    kind, shape = transformers.AutoModelForSequenceClassification, SHAPES.get(model)
    torch.manual_seed(seed)
    if shape is not None:
        return kind.from_config(transformers.BertConfig(**shape))  # two labels are its default
    return load_pretrained(model, seed=seed)


def load_checkpoint(folder: Path) -> nn.Module:
    """A classifier that `save_checkpoint` wrote."""
    return _load(str(folder))


def save_checkpoint(model: nn.Module, folder: Path) -> None:
    """Write configuration and weights in the hub's layout."""
    pretrained: Any = model  # a PreTrainedModel; transformers is only partly typed
    pretrained.save_pretrained(folder)


def load_tokenizer(model: str) -> Any:
    """The tokenizer that belongs to the model."""
    import transformers

    source = _source(model)
    tokenizer = _from_pretrained(transformers.AutoTokenizer, source)
    outside.check_tokenizer(tokenizer, source)
    return tokenizer


def _load(source: str) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = transformers.AutoModelForSequenceClassification
    options = {"num_labels": NUM_LABELS, "use_safetensors": True, "dtype": torch.float32}
    return _from_pretrained(kind, source, **options)


def _from_pretrained(kind: Any, source: str, **options: Any) -> Any:
    from safetensors import SafetensorError

    if not Path(source).is_dir():
        outside.prepare_hub()
    try:
        return kind.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise MadlError(
            f"cannot load {source} ({said}); "
            "check the name and the network, or give a folder with --model"
        ) from error
