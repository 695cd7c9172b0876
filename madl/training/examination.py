"""Examination of a model and data that a user brings, before anything runs.

What cannot be loaded, batched, trained or evaluated is refused with one line. If the model lacks
what only some questions need, the reason is kept by the name of that requirement: plans leave these
questions out and say why, so that none of their cases fail. An examination depends on the workload
and the code alone, and is done once.
"""

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madl.errors import MadlError, WrongCommand, kind_and_line
from madl.files import LIBRARY, write_atomically
from madl.logbook.experiment import CUT, EXPORT
from madl.logbook.records import Params, digest_of
from madl.machine import sources
from madl.training import workloads

if TYPE_CHECKING:
    from torch import Tensor, nn

    from madl.training.data import Dataset

SAMPLE = 1000  # texts whose tokens are counted
BATCH = 4
LENGTH = 128  # tokens, where the workload states none
FEWEST_POSITIONS = 64
MANY_UNKNOWN = 0.05  # share of all tokens; more is reported as a change of the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Facts about a workload in words; `lacks`: requirement → why the model does not meet it."""

    model: str
    data: str
    changes: Sequence[str]
    lacks: Mapping[str, str]


def is_needed(workload: Params) -> bool:
    """Whether a workload has to be examined: its model or its data are not a preset's."""
    return not (_is_preset(workload, "model") and _is_preset(workload, "dataset"))


def _is_preset(workload: Params, name: str) -> bool:
    """Whether this part of the workload, `model` or `dataset`, is that of a preset."""
    return workload[name] in {getattr(preset, name) for preset in workloads.PRESETS.values()}


def known(state: Path, workload: Params) -> Examination | None:
    """The stored examination of this workload, by whichever code; None: there is none."""
    return _stored(state, workload)[1]


def examined(state: Path, workload: Params) -> Examination:
    """The examination of this workload by today's code; it is done and stored if there is none.

    Raises:
        WrongCommand: nothing can be done with this model, or with these data.
    """
    code = sources.digest_of_all(LIBRARY)
    by, stored = _stored(state, workload)
    if stored and by == code:
        return stored
    try:
        examination = examine(workload)
    except MadlError as error:
        raise WrongCommand(str(error)) from error
    content = {"code": code, "examination": asdict(examination)}
    write_atomically(_path(state, workload), json.dumps(content))
    return examination


def _stored(state: Path, workload: Params) -> tuple[str, Examination | None]:
    """(digest of the code, examination) as stored; ("", None) if missing or damaged."""
    try:
        content: Any = json.loads(_path(state, workload).read_text("utf-8"))
        fields: dict[str, Any] = content["examination"]
        return str(content["code"]), Examination(**fields)
    except (OSError, ValueError, LookupError, TypeError):
        return "", None


def _path(state: Path, workload: Params) -> Path:
    """The file of a workload's examination."""
    return state / "examined" / f"{digest_of(workload)}.json"


def examine(workload: Params) -> Examination:
    """Load, encode, train one step, and try what single questions need, for this workload.

    Raises:
        MadlError: what is wrong with the model or the data, and what to do.
    """
    from madl.training import baseline, data, models

    name = str(workload["model"])
    tokenizer = models.load_tokenizer(name)
    model: Any
    model, head = models.load_with_new_head(name, seed=0)
    columns = baseline.columns_of(workload)
    dataset = data.load_dataset(str(workload["dataset"]), 0, columns)
    changes = data_changes({"max_length": LENGTH, "seed": 0, **workload})
    if len(tokenizer) > (entries := model.get_input_embeddings().num_embeddings):
        raise MadlError(
            f"the tokenizer of {name} has {len(tokenizer):,} tokens and its model {entries:,}; "
            "give a folder with files of one model to --model"
        )
    if head:
        changes.append("its classification head is replaced: each seed draws one of two labels")
    longest = models.longest_input(name) or LENGTH
    if longest < FEWEST_POSITIONS:
        raise MadlError(
            f"the model {name} has positions for {longest} tokens, and {FEWEST_POSITIONS} are the "
            "fewest; give another to --model"
        )
    encoded = data.encode(dataset.train.first(BATCH), tokenizer, max_length=min(LENGTH, longest))
    batch = encoded.batch(range(len(encoded)))
    _train_a_step(name, model, batch)
    tried = {CUT: _cut, EXPORT: _export} if not _is_preset(workload, "model") else {}
    return Examination(
        model=_model_in_words(model),
        data=_data_in_words(dataset),
        changes=changes,
        lacks={need: why for need, attempt in tried.items() if (why := attempt(model, batch))},
    )


def _train_a_step(name: str, model: Any, batch: "Mapping[str, Tensor]") -> None:
    """Run the model forward and backward on a batch. Raises MadlError: it fails."""
    try:
        model.train()(**batch).loss.backward()
        model.zero_grad()
        model.eval()
    except Exception as error:  # whatever other people's models raise
        raise MadlError(
            f"the model {name} cannot be trained as a classifier of texts ({_line(error)}); "
            "give an encoder like BERT to --model"
        ) from error


def _cut(model: "nn.Module", batch: "Mapping[str, Tensor]") -> str | None:
    """The reason why sub-networks cannot be cut out of the model; None: they can."""
    from madl.compression import subnetwork

    try:
        shape = subnetwork.shape_of(model)
        subnetwork.cut(model, shape, subnetwork.importance(model, batch))
    except MadlError as error:
        return str(error).partition("; ")[0]
    sizes = shape.num_hidden_layers, shape.num_attention_heads
    return None if min(sizes) > 1 else f"{sizes[0]} layers of {sizes[1]} heads leave no choice"


def _export(model: "nn.Module", batch: "Mapping[str, Tensor]") -> str | None:
    """The reason why the model's graph cannot be captured; None: it can."""
    from madl.execution import graphs

    ignored = io.StringIO()  # torch prints all that it has captured until then
    try:
        with contextlib.redirect_stderr(ignored), contextlib.redirect_stdout(ignored):
            graphs.capture(model, batch, training=True)
    except Exception as error:  # torch.export's own and the model's
        return f"torch.export cannot capture {type(model).__name__} ({_line(error)})"
    return None


def _line(error: Exception) -> str:
    """An error as a line of at most 160 characters."""
    return kind_and_line(error)[:160]


def data_changes(params: Params) -> list[str]:
    """One sentence for each change of the data on their way to the model of these parameters."""
    from madl.training import baseline, data, models

    name, columns = str(params["dataset"]), baseline.columns_of(params)
    tokenizer = models.load_tokenizer(str(params["model"]))
    seed, length = (baseline.integer(params, name) for name in ("seed", "max_length"))
    longest = min(length, models.longest_input(str(params["model"])) or length)
    texts = data.load_dataset(name, seed, columns).train.first(SAMPLE).texts
    ids = tokenizer(list(texts))["input_ids"]
    changes = [*data.prepared(name, columns).changes]
    if cut := sum(len(tokens) > longest for tokens in ids):
        changes.append(f"{cut / len(ids):.0%} of the texts are cut after {longest} tokens")
    unknown = sum(tokens.count(tokenizer.unk_token_id) for tokens in ids)
    if (share := unknown / sum(map(len, ids))) > MANY_UNKNOWN:
        changes.append(f"{share:.0%} of the tokens are words that the tokenizer does not know")
    return changes


def _model_in_words(model: Any) -> str:
    family = type(model).__name__.removesuffix("ForSequenceClassification")
    config, count = model.config, sum(p.numel() for p in model.parameters())
    return (
        f"{family}, {config.num_hidden_layers} layers of {config.num_attention_heads} heads, "
        f"{config.hidden_size} wide, {count:,} parameters"
    )


def _data_in_words(dataset: "Dataset") -> str:
    counts = {"train": dataset.train, "choose by": dataset.validation, "test": dataset.test}
    listed = [f"{len(split):,} to {purpose}" for purpose, split in counts.items()]
    positive = sum(dataset.test.labels) / len(dataset.test)
    return f"texts: {', '.join(listed)}; label 1 has {positive:.0%} of the test texts"
