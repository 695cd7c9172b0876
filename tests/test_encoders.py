"""Encoders of other families: found by role, cut where they can be, told in a line where not."""

import re
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from experiments.lab0_lora import adapters
from madl.compression import subnetwork
from madl.compression.roles import ROLES, SQUARE_KINDS, block, role
from madl.errors import MadlError
from madl.logbook.experiment import CUT, EXPORT
from madl.training import examination, models, precision, workloads
from tests.encoders import CUTTABLE, FAMILIES, saved
from tests.test_cli import call

ENCODERS = [family for family in FAMILIES if family != "GPT-2"]


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture
def folder(root, request):
    return str(saved(root, request.param))


@pytest.fixture
def batch():
    ids = torch.tensor([[2, 7, 9, 8, 11, 3], [2, 6, 9, 3, 0, 0]])
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    return {"input_ids": ids, "attention_mask": mask}


def of(families):
    return pytest.mark.parametrize("folder", families, indirect=True, ids=str)


@of(ENCODERS)
def test_every_block_has_the_roles_of_bert_s_layers_and_the_head_its_own(folder):
    layers = precision.layer_names(models.load_pretrained(folder, seed=0))
    numbers = {block(layer) for layer in layers} - {None}
    inside = {number: Counter(role(x) for x in layers if block(x) == number) for number in numbers}
    assert numbers == set(range(len(numbers)))
    for counts in inside.values():
        assert {"output", "up", "down"} <= counts.keys()
        assert {"query", "key", "value"} <= counts.keys() or "query, key, value" in counts
        assert set(counts.values()) == {1}
    around = [role(layer) for layer in layers if block(layer) is None]
    assert around[-1] == "classifier"
    assert around.count("pooler") == around.count("classifier") == 1
    assert {*around} - {*ROLES} <= {"electra.embeddings_project"} | {
        "albert.encoder.embedding_hidden_mapping_in"
    }


@of(ENCODERS)
def test_a_seed_draws_the_whole_head_and_nothing_else(folder):
    first, again, other = (models.load_pretrained(folder, seed=seed) for seed in (1, 1, 2))
    head = set(models.head_of(first))
    assert head
    assert first.config.num_labels == 2
    for (name, a), b, c in zip(first.named_parameters(), again.parameters(), other.parameters()):
        assert torch.equal(a, b), name
        is_constant = a.unique().numel() == 1  # a bias of zeros, a norm of ones
        assert torch.equal(a, c) == (name not in head or is_constant), name
    assert set(models.load_with_new_head(folder, seed=1)[1]) == head


@of(CUTTABLE)
def test_it_is_cut_to_any_shape_and_the_whole_shape_is_the_whole_model(folder, batch):
    model = models.load_pretrained(folder, seed=0).eval()
    scores, whole = subnetwork.importance(model, batch), subnetwork.shape_of(model)
    same = subnetwork.cut(model, whole, scores)
    assert torch.equal(same(**batch).logits, model(**batch).logits)
    shape = replace(
        whole, num_hidden_layers=1, num_attention_heads=2, hidden_size=20, intermediate_size=24
    )
    small = subnetwork.cut(model, shape, scores)
    assert subnetwork.shape_of(small) == shape
    for kinds in ((), SQUARE_KINDS):
        small = subnetwork.cut(model, shape, scores, kinds)
        assert sum(isinstance(m, subnetwork.Identity) for m in small.modules()) == len(kinds)
        small.set_attn_implementation("eager")
        small.train()(**batch, labels=torch.tensor([0, 1])).loss.backward()


@of([name for name in ENCODERS if name not in (*CUTTABLE, "BERT, one block")])
def test_one_of_another_shape_says_why_it_cannot_be_cut(folder):
    with pytest.raises(MadlError, match=r"cannot be cut \(its .*\); give a BERT-like one$"):
        subnetwork.shape_of(models.load_pretrained(folder, seed=0))


@of(ENCODERS)
def test_adapters_take_the_encoder_and_the_head_learns(folder):
    model = models.load_pretrained(folder, seed=0)
    encoder, head = re.escape(model.base_model_prefix), set(models.head_of(model))
    linear = {name for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    layers, also_train = rf"{encoder}\..*", rf"(?!{encoder}\.).*"
    adapted = adapters.adapt_(model, layers=layers, also_train=also_train, rank=2, alpha=4)
    assert set(adapted) == {n for n in linear if n.startswith(f"{model.base_model_prefix}.")}
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name in learning if "lora_" not in name} == head


@pytest.mark.parametrize(("family", "longest"), [("BERT", 64), ("RoBERTa", 64), ("MPNet", 64)])
def test_as_many_tokens_as_there_are_positions(root, batch, family, longest):
    folder = str(saved(root, family))
    assert models.longest_input(folder) == longest
    model = models.load_pretrained(folder, seed=0).eval()
    ids = torch.full((1, longest), 7)
    model(input_ids=ids, attention_mask=torch.ones_like(ids))
    longer = torch.full((1, longest + 1), 7)
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=longer, attention_mask=torch.ones_like(longer))


@pytest.mark.parametrize("family", [f for f in ENCODERS if f != "BERT, four labels"])
def test_before_anything_runs_it_is_known_what_a_model_lacks(root, tmp_path, tiny_dataset, family):
    chosen = workloads.resolve(
        "snippets", model=str(saved(root, family)), dataset=str(tiny_dataset)
    )
    seen = examination.examined(tmp_path, chosen.params())
    assert (CUT in seen.lacks) == (family not in CUTTABLE)
    assert (EXPORT in seen.lacks) == (family == "DeBERTa")
    assert all("\n" not in why for why in seen.lacks.values())
    assert examination.known(tmp_path, chosen.params()) == seen


BEFORE = ("model      ", "data       ", "9.1: can be answered")


def test_a_command_says_what_model_and_data_can_answer_before_it_does_anything(
    root, toy, tmp_path, tiny_dataset, caplog
):
    caplog.set_level("INFO", "madl")
    of_data = ("--dataset", str(tiny_dataset))
    for command in ("run", "all", "doctor"):
        refused = call(command, "--model", str(saved(root, "GPT-2")), *of_data)
        assert refused.exit_code == 2
        assert re.search("has no padding token.*give an encoder like BERT", refused.output)
        assert (tmp_path / "log").read_text() == ""
    for command in ("doctor", "run", "all"):
        caplog.clear()
        jobs = () if command == "doctor" else ("--jobs", "1")
        told = call(command, "--model", str(saved(root, "BERT, four labels")), *of_data, *jobs)
        assert told.exit_code == 0
        said = [*told.output.splitlines(), *caplog.messages]
        at = [next(i for i, line in enumerate(said) if line.startswith(s)) for s in BEFORE]
        assert at == sorted(at), command
