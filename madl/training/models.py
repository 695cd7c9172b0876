"""Pretrained classifiers and their checkpoints; safetensors only, nothing is ever pickled."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from madl import assets
from madl.errors import MadlError
from madl.training.workloads import unpin

NUM_LABELS = 2


def _source(model: str) -> str:
    return str(assets.fetch(model)) if model in assets.ASSETS else unpin(model)


def load_pretrained(model: str, *, seed: int) -> nn.Module:
    """The pretrained encoder with a new classification head, drawn from `seed`.

    Raises:
        MadlError: no such model, or it cannot be had.
    """
    torch.manual_seed(seed)
    return _load(_source(model))


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

    return _from_pretrained(transformers.AutoTokenizer, _source(model))


def _load(source: str) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = transformers.AutoModelForSequenceClassification
    options = {"num_labels": NUM_LABELS, "use_safetensors": True, "dtype": torch.float32}
    return _from_pretrained(kind, source, **options)


def _from_pretrained(kind: Any, source: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError) as error:  # what transformers raises for a source it cannot use
        raise MadlError(
            f"cannot load {source} ({str(error).splitlines()[0]}); "
            "check the name and the network, or give a folder with --model"
        ) from error
