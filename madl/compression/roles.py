"""The role of a Linear layer in an encoder, told by its name in any model family, without torch.

Roles are those of BERT's layers: `query`, `key`, `value` and `output` of the attention, `up` and
`down` of the feed-forward part, `pooler` and `classifier` behind the last block. ModernBERT has
`query, key, value` in one layer.
"""

import re

_NAMES = {  # role → how the name of its layer ends, from a dot on
    "query": ("query", "q_lin", "attn.q", "query_proj"),
    "key": ("key", "k_lin", "attn.k", "key_proj"),
    "value": ("value", "v_lin", "attn.v", "value_proj"),
    "query, key, value": ("Wqkv",),
    "output": ("attention.output.dense", "attention.dense", "out_lin", "attn.o", "attn.Wo"),
    "up": ("intermediate.dense", "lin1", "ffn", "mlp.Wi"),
    "down": ("output.dense", "lin2", "ffn_output", "mlp.Wo"),
    "pooler": ("pooler.dense", "pooler", "pre_classifier", "classifier.dense", "head.dense"),
    "classifier": ("classifier", "classifier.out_proj"),
}
_ROLE_OF = {ending: role for role, endings in _NAMES.items() for ending in endings}
ROLES = tuple(_NAMES)  # in the order in which they run
# Layers that are square in every BERT, as many outputs as inputs. Each but the pooler stands once
# in every layer of the encoder.
SQUARE_KINDS = ("query", "key", "value", "attention_output", "pooler")


def role(layer: str) -> str:
    """The role of a layer, given its full name; of an unknown one, its name within its block."""
    parts = layer.split(".")
    for start in range(len(parts)):  # the longest ending first
        if known := _ROLE_OF.get(".".join(parts[start:])):
            return known
    return re.split(r"\.\d+\.", layer)[-1]


def block(layer: str) -> int | None:
    """The number of the encoder's block in a layer's full name; None: it is outside the blocks."""
    match = re.search(r"\.(\d+)\.", layer)
    return int(match[1]) if match else None
