"""Models and data that users bring: looked at before they are loaded, and never run.

A model is weights in safetensors, numbers in `config.json`, and the files of its tokenizer. Nothing
in a folder is executed, no file in it leads out of it, and how much memory it asks for is counted
before any is allocated. Data sets are read in `tables`.

Not handled: what a file of the hub costs to download.
"""

import functools
import json
import re
import resource
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from madl.errors import MadlError, first_line
from madl.files import why
from madl.logbook.shapes import shown

CONFIG_KB = 1024
LAYERS = 1000  # or blocks, experts …: more would take hours to make, even without memory
FILE_GB = 20


# ---- models -------------------------------------------------------------------------------------


def check_model(folder: Path) -> None:
    """Refuse a folder that is no model, or one that cannot be loaded here.

    Raises:
        MadlError: it lacks something, leads out of itself, or asks for too much memory.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise _refused(folder, f"{path.name} is a link to elsewhere")
        if path.is_file() and path.stat().st_size > FILE_GB << 30:
            raise _refused(folder, f"{path.name} has more than {FILE_GB} GB")
    config = _config(folder)
    weights = [*folder.glob("*.safetensors")]
    if not weights:
        raise _refused(folder, "it has no weights in safetensors, and others are not read")
    for path in weights:
        _check_weights(folder, path)
    needed, free = _bytes_of(folder, config), free_bytes()
    if free is not None and needed > free:
        gb = f"{needed / 2**30:,.0f} GB of memory, and {free / 2**30:,.1f} GB are free"
        raise _refused(folder, f"its configuration asks for {gb}")


def _refused(folder: Path, reason: str) -> MadlError:
    """The error that refuses a model."""
    return MadlError(f"cannot load the model {folder} ({reason}); give a folder with --model")


def _config(folder: Path) -> Mapping[str, Any]:
    """The values in a model's `config.json`. Raises MadlError: bad, too large, or asks for code."""
    path = folder / "config.json"
    try:
        if path.stat().st_size > CONFIG_KB << 10:
            raise _refused(folder, f"config.json has more than {CONFIG_KB} KB")
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(folder, f"config.json cannot be read ({why(error)})") from error
    if not isinstance(config, dict):
        raise _refused(folder, "config.json holds no names with values")
    values: dict[str, Any] = config
    for name, value in _all(values):
        many = isinstance(value, int) and value > LAYERS
        if many and re.search(r"layers?$|depths?$|experts|blocks?$", name):
            raise _refused(folder, f"config.json has {name} = {shown(value)}, at most {LAYERS}")
        if "attn_implementation" in name and "/" in str(value):
            raise _refused(folder, f"config.json asks for code of others, {name} = {shown(value)}")
    return values


def _all(values: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of all values in nested dictionaries and lists; an item has its list's name."""
    if isinstance(values, dict):
        for key, value in values.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _all(value, str(key))  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(values, list):
        for value in values:  # pyright: ignore[reportUnknownVariableType]
            yield from _all(value, name)
    else:
        yield name, values


def _check_weights(folder: Path, path: Path) -> None:
    """Raise MadlError if the header of a safetensors file is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:  # checks every size and place in its header
            file.keys()
    except (SafetensorError, OSError) as error:
        raise _refused(folder, f"{path.name} is damaged ({why(error)})") from error


def _bytes_of(folder: Path, values: Mapping[str, Any]) -> int:
    """The bytes of a model in float32, counted only. Raises MadlError: the config makes none."""
    import torch
    import transformers

    classifier: Any = transformers.AutoModelForSequenceClassification
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model = classifier.from_config(config, trust_remote_code=False)
        return 4 * sum(parameter.numel() for parameter in model.parameters())
    except Exception as error:  # whatever its numbers lead to
        kind = shown(values.get("model_type"))
        raise _refused(
            folder, f"{kind} cannot be made of config.json ({first_line(error)})"
        ) from error


def free_bytes() -> int | None:
    """The smaller of the system's available memory and this process's limit; None: both unknown."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    free = [limit] if limit != resource.RLIM_INFINITY else []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    except OSError:
        pass
    return min(free, default=None)


def check_tokenizer(tokenizer: Any, source: str) -> None:
    """Raise MadlError if a tokenizer has no padding, or no words, as one made without its files."""
    if tokenizer.pad_token_id is None:
        raise MadlError(
            f"the tokenizer of {source} has no padding token, so its texts make no batch; "
            "give an encoder like BERT to --model"
        )
    words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    if len(words) < 2:
        raise MadlError(
            f"the model {source} has no tokenizer, or one without words; put its files "
            "(tokenizer.json, or vocab.txt) beside config.json"
        )


# ---- data ---------------------------------------------------------------------------------------


def no_data(source: object, reason: str, do: str = "give a folder with --dataset") -> MadlError:
    """The error that refuses a data set: a folder, or a name of the hub."""
    return MadlError(f"cannot load data set {source} ({reason}); {do}")


# ---- the hub ------------------------------------------------------------------------------------


@functools.cache
def prepare_hub() -> None:
    """Silence the hub's libraries, and have them give up at once where there is no network."""
    import logging

    import huggingface_hub.constants as hub

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    host = urllib.parse.urlsplit(hub.ENDPOINT).hostname or ""
    if urllib.request.getproxies():
        return
    try:
        socket.create_connection((host, 443), timeout=5).close()
    except OSError:
        hub.HF_HUB_OFFLINE = True  # what is in its cache is used all the same
