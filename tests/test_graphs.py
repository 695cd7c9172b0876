"""Graphs: counts checked by hand, passes that change what they should, the genuine error."""

import json

import pytest
import torch
from torch import nn

from experiments.lab0_graph import study
from madl.execution import graphs
from madl.training import models
from madl.training.data import Encoded


class Residual(nn.Module):
    """Two Linear layers around a dropout whose value is used twice: 2 + 4 + 3 + 2 nodes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, y):
        dropped = self.dropout(self.first(x))
        return self.second(dropped) + dropped + y


@pytest.fixture(scope="module")
def bert(tiny_model):
    """The two-layer BERT of the tests, and a batch of it."""
    torch.manual_seed(0)
    ids = torch.randint(5, 20, (4, 9))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    labels = torch.tensor([0, 1, 0, 1])
    model = models.load_checkpoint(tiny_model).eval()
    return model, {"input_ids": ids, "attention_mask": mask, "labels": labels}


def test_removing_dropout_redirects_its_users_and_leaves_the_given_graph_alone():
    torch.manual_seed(0)
    batch, model = {"x": torch.randn(3, 4), "y": torch.randn(3, 4)}, Residual()
    captured = graphs.capture(model, batch, training=True)
    without = study.remove_dropout(captured.graph)
    assert len(study.dropout_nodes(captured.graph)) == 1
    assert study.dropout_nodes(without) == []
    assert len(without.nodes) == len(captured.graph.nodes) - 1
    expected = model.eval()(**batch)
    assert torch.equal(study.with_graph(captured, without)(**batch), expected)
    assert not torch.equal(captured(**batch), expected)  # its dropout is on for good


def test_a_two_layer_bert_has_what_a_hand_counts(bert):
    model, example = bert
    sentences = [[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 7, 3], [2, 8, 3]]
    found = study.study(model, example, Encoded(token_ids=sentences, labels=[0] * 4, pad_id=0))
    counts = found["operators"]
    assert counts["linear"] == 6 * 2 + 2  # q, k, v, out, two of the FFN; pooler, classifier
    assert counts["dropout"] == 1 + 2 * 2 + 1  # embeddings; two a layer; before the classifier
    assert counts["layer_norm"] == 1 + 2 * 2
    # embeddings: 3 tables, a norm of 2, 2 buffers; a layer: 6 Linear and 2 norms of 2; 2 heads of 2
    assert found["kinds"]["get_attr"] == 7 + 2 * 16 + 4
    assert "dropout" not in found["operators_after"]
    assert (found["inside"], found["unfused"]) == (2, 6 + 2)
    assert (found["random"], found["clean"]) == (4, 4)
    assert found["symbolic"]["error"]
    assert set(found["symbolic"]["examples"]) >= {"call_module", "call_method"}
    assert all(f"{user}: None" in found["erase"]["error"] for user in found["erase"]["users"])
    assert json.loads(json.dumps(found)) == found  # plain data, as a record keeps it
