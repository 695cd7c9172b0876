"""Models and data of other people: hostile folders are refused in one line, and nothing is run."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import pytest

from madl.errors import MadlError
from madl.training import data, models, outside


@pytest.fixture
def folder(tiny_model, tmp_path) -> Path:
    return shutil.copytree(tiny_model, tmp_path / "model")


def configure(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def with_false_header(path: Path) -> None:
    """Weights whose header promises what is not there."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**40]}})
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"\0" * 4)


WEIGHTS = "model.safetensors"
HOSTILE = {  # what is done to a folder, and what is said
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json cannot be read"),
    "bytes": (lambda f: (f / "config.json").write_bytes(b"\xff"), "byte 0 is not UTF-8"),
    "deep": (lambda f: (f / "config.json").write_text("[" * 10**5), "config.json cannot be read"),
    "long": (lambda f: (f / "config.json").write_text(" " * 2**21), "more than 1024 KB"),
    "wide": (lambda f: configure(f, hidden_size=2**20, num_attention_heads=1), "asks for"),
    "overflowing": (lambda f: configure(f, vocab_size=2**62), "cannot be made of config.json"),
    "many layers": (lambda f: configure(f, num_hidden_layers=10**9), "at most 1000"),
    "code of others": (lambda f: configure(f, attn_implementation="a/b"), "asks for code"),
    "pickles": (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "no weights in safetens"),
    "half": (lambda f: cut(f / WEIGHTS, 5000), "model.safetensors is damaged"),
    "a false size": (lambda f: with_false_header(f / WEIGHTS), "is damaged"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_model_is_refused_in_one_line(folder, how):
    spoil, message = HOSTILE[how]
    spoil(folder)
    with pytest.raises(MadlError, match="cannot load .*; .*give a folder with --model$") as caught:
        models.load_pretrained(str(folder), seed=0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


CODE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
Path({ran!r}).touch()
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
class MyConfig(BertConfig):
    model_type = "mine"
class MyModel(BertForSequenceClassification):
    config_class = MyConfig
class MyTokenizer(BertTokenizer):
    pass
"""


@pytest.mark.parametrize("model_type", ["mine", "bert"])
def test_no_code_of_a_model_folder_is_run_whatever_stands_on_stdin(
    folder, tmp_path, model_type, monkeypatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 100))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hub"))
    ran = tmp_path / "ran"
    (folder / "mine.py").write_text(CODE.format(ran=str(ran)))
    kinds = ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification", "AutoTokenizer")
    classes = ("MyConfig", "MyModel", "MyModel", "MyTokenizer")
    auto_map = {kind: f"mine.{name}" for kind, name in zip(kinds, classes)}
    configure(folder, model_type=model_type, auto_map=auto_map, architectures=["MyModel"])
    settings = {
        "tokenizer_class": "MyTokenizer",
        "auto_map": {"AutoTokenizer": ["mine.MyTokenizer"] * 2},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    expected = contextlib.nullcontext()
    if model_type == "mine":
        expected = pytest.raises(MadlError, match="cannot load the model")
    with expected:
        models.load_pretrained(str(folder), seed=0)
    with contextlib.suppress(MadlError):
        models.load_tokenizer(str(folder))
    assert not list(tmp_path.rglob("ran"))


GOOD = {"text": ["a b", "c d"] * 20, "label": [0, 1] * 20}


def reviews(folder: Path, **columns) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for name, made in (("test", GOOD), ("train", columns or GOOD)):
        pq.write_table(pa.table(made), folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("how", ["half", "a link", "a script"])
def test_data_that_are_no_data_are_refused_in_one_line(tmp_path, how):
    folder, ran = reviews(tmp_path / "data"), tmp_path / "ran"
    train = folder / "train.parquet"
    if how == "half":
        cut(train, train.stat().st_size // 2)
    else:
        train.rename(tmp_path / "train.parquet")
    if how == "a link":
        train.symlink_to(tmp_path / "train.parquet")
    if how == "a script":
        (folder / "data.py").write_text(f"open({str(ran)!r}, 'w')")
        (folder / "README.md").write_text(
            "---\nconfigs: [{config_name: a, data_files: /etc/*}]\n---\n"
        )
    with pytest.raises(MadlError, match="cannot load data set .*; give a folder") as caught:
        data.load_dataset(str(folder), 10)
    assert "\n" not in str(caught.value)
    assert not ran.exists()


def test_without_the_hub_what_is_named_by_an_id_is_one_line(monkeypatch):
    import huggingface_hub.constants as hub

    def nobody(*_, **__):
        raise OSError("no route")

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(outside.socket, "create_connection", nobody)
    monkeypatch.setattr(outside.urllib.request, "getproxies", dict)
    outside.prepare_hub.cache_clear()
    for load, of in ((data.prepared, "data set"), (models.load_tokenizer, "")):
        with pytest.raises(
            MadlError, match=f"cannot load {of}.*check the name and the net"
        ) as told:
            load("nobody/has-this")
        assert "\n" not in str(told.value)
    assert hub.HF_HUB_OFFLINE
    outside.prepare_hub.cache_clear()
