"""Tiny encoders of other families than BERT's, with random weights, in the hub's layout."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import BAD, FILLER, GOOD

SIZES: dict[str, Any] = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"intermediate_size": 64, "max_position_embeddings": 64},
}
BEHIND = {**SIZES, "max_position_embeddings": 66}  # positions are counted from the padding on
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {  # name → class of its configuration, sizes
    "BERT": ("BertConfig", SIZES),
    "BERT, four labels": ("BertConfig", {**SIZES, "num_labels": 4}),
    "BERT, one block": ("BertConfig", {**SIZES, "num_hidden_layers": 1}),
    "BERT, odd sizes": (
        "BertConfig",
        {**SIZES, "hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 60},
    ),
    "DistilBERT": ("DistilBertConfig", DISTIL),
    "RoBERTa": ("RobertaConfig", BEHIND),
    "ELECTRA": ("ElectraConfig", {**SIZES, "embedding_size": 16}),
    "MPNet": ("MPNetConfig", BEHIND),
    "ModernBERT": ("ModernBertConfig", {**SIZES, "global_attn_every_n_layers": 2}),
    "ALBERT": ("AlbertConfig", {**SIZES, "embedding_size": 16}),
    "DeBERTa": ("DebertaV2Config", {**SIZES, "relative_attention": True, "position_buckets": 16}),
    "GPT-2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
}
CUTTABLE = ("BERT", "BERT, four labels", "BERT, odd sizes", "DistilBERT", "RoBERTa", "ELECTRA")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*GOOD, *BAD, *FILLER})]
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "mask")}


@functools.cache
def saved(root: Path, family: str) -> Path:
    """The folder of the family's model, made below `root` once."""
    import torch
    import transformers

    name, sizes = FAMILIES[family]
    folder = root / family
    words = [*WORDS]
    if "Roberta" in name or "MPNet" in name:  # whose padding has the number 1
        words[:2] = reversed(words[:2])
    numbers = {f"{n}_token_id": words.index(f"[{n.upper()}]") for n in ("pad", "cls", "sep")}
    numbers |= {"bos_token_id": numbers["cls_token_id"], "eos_token_id": numbers["sep_token_id"]}
    if family == "GPT-2":
        numbers["pad_token_id"] = None
    make: Callable[..., Any] = getattr(transformers, name)
    torch.manual_seed(0)
    config = make(vocab_size=len(words), **sizes, **numbers)
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer = transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(words)})
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL}
    settings |= {} if family == "GPT-2" else {"pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
