"""Data that people have: folders, tars, token files, mixtures, and tokenizers that others trained."""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import struct
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.ipc
import pytest
import regex
from tokenizers import Tokenizer

from ablate.data import Corpus, DataError, identify, parse, prepare
from ablate.data.sources import TextSource
from ablate.data.sources.tokens import documents
from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers._encoder import EOS
from ablate.data.tokenizers.bpe import train
from ablate.data.tokenizers.bytes import byte_tokenizer
from ablate.data.tokenizers.tiktoken import PATTERNS
from ablate.study.complaints import StudyError
from ablate.study.reading import load_study
from tests.documents import text_meta_of

END = 256


def read(base: Path, **spec: object) -> list[str]:
    found = parse(spec)
    assert isinstance(found, TextSource)
    return list(found.documents(base))


def tokenizer_of(settings: dict[str, object]) -> TokenizerSpec:
    found = parse({"source": "stdlib", "tokenizer": settings})
    assert isinstance(found, TextSource)
    return found.tokenizer


def test_a_folder_is_all_text_below_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "deep" / "a.md").write_text("a")
    (tmp_path / "deep" / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "c"}\n'))
    for name in ("image.png", ".hidden.txt"):
        (tmp_path / name).write_bytes(b"\xff")
    assert read(tmp_path, source="files", paths=".") == ["b", "a", "c"]
    assert read(tmp_path, source="files", paths="*.txt") == ["b"]  # a glob means the files that it matches
    with pytest.raises(DataError, match="the folder has no file of a known kind"):
        read(tmp_path, source="tokens", paths="deep")


def tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_a_link_in_a_tar_is_named(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "shard.tar", "w") as archive:
        for name, linked in (("a.txt", ""), ("b.txt", "a.txt")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = (kind, linked) if linked else (tarfile.REGTYPE, "")
            archive.addfile(member, io.BytesIO())
    with pytest.raises(DataError, match=r"shard\.tar: b\.txt is a link to a\.txt: pack the file itself"):
        read(tmp_path, source="files", paths="shard.tar")


@pytest.mark.parametrize("name", ["shard.tar", "shard.tar.gz"])
def test_a_sample_of_a_tar_is_a_document(name: str, tmp_path: Path) -> None:
    members = {
        "a/000.json": b'{"text": "not this"}',
        "a/000.txt": "zwei – drei".encode(),
        "a/000.cls": b"1",
        "a/001.json": json.dumps({"text": "四\n五"}).encode(),
        "a/002.json": b'{"text": null}',
        "a/003.text": b"three",
    }
    tar(tmp_path / name, members)
    assert read(tmp_path, source="files", paths=name) == ["zwei – drei", "四\n五", "three"]
    tar(tmp_path / name, {"a/007.jpg": b"", "a/007.json": b'{"caption": "x"}'})
    with pytest.raises(DataError, match=r"a/007 has no \.txt, .* found: jpg, json, json with caption"):
        read(tmp_path, source="files", paths=name)
    (tmp_path / name).write_bytes(b"no tar" * 200)
    with pytest.raises(DataError):
        read(tmp_path, source="files", paths=name)


SAVED = ["one", "zwei", "三"]


def test_a_dataset_on_disk_is_its_column(tmp_path: Path) -> None:
    """As `datasets.save_to_disk` writes it, in shards and by split, and an Arrow file."""
    rows = datasets.Dataset.from_dict({"text": [*SAVED, None], "n": [1, 2, 3, 4]})
    rows.save_to_disk(tmp_path / "saved", num_shards=2)
    (tmp_path / "saved" / "cache-0123.arrow").write_bytes(b"computed from the others")
    datasets.DatasetDict(train=rows, test=rows).save_to_disk(tmp_path / "both")
    with pyarrow.ipc.new_file(tmp_path / "one.feather", rows.data.table.schema) as file:
        file.write_table(rows.data.table)
    for paths in ("saved", "saved/data-*.arrow", "both/train", "one.feather"):
        assert read(tmp_path, source="files", paths=paths) == SAVED, paths
    with pytest.raises(DataError, match=r"data-00000-of-00002\.arrow has no column 'words'; columns: text, n"):
        read(tmp_path, source="files", paths="saved", column="words")
    shard = tmp_path / "saved" / "data-00000-of-00002.arrow"
    for content in (shard.read_bytes()[:100], shard.read_bytes()[:-40], b"ARROW1\0\0no", b""):
        shard.write_bytes(content)
        try:
            assert set(read(tmp_path, source="files", paths="saved")) <= set(SAVED)
        except DataError as error:
            assert "\n" not in str(error) and "iconv" not in str(error), content


def test_shards_of_streaming_say_what_converts_them(tmp_path: Path) -> None:
    (tmp_path / "mds").mkdir()
    (tmp_path / "mds" / "index.json").write_text('{"shards": [], "version": 2}')
    (tmp_path / "mds" / "shard.00000.mds").write_bytes(struct.pack("<III", 1, 16, 20) + b"\xff{}text")
    for paths in ("mds", "mds/*.mds"):
        with pytest.raises(DataError, match=r"shard\.00000\.mds is a shard of MosaicML streaming.*StreamingDataset\("):
            read(tmp_path, source="files", paths=paths)


@pytest.mark.parametrize(
    "content",
    [
        b"SQLite format 3\0" + bytes(80),
        b"Obj\x01\x04\x14avro.codec",
        b"ORC\x11\0\0 and \xff",
        b"\x93NUMPY\x01\0v\0{",
        pickle.dumps({"a": 1}),
        b"\x89HDF\r\n\x1a\n\0",
        b"text \xff\xfe\0 and more text",
    ],
)
def test_binary_files_are_not_sent_to_iconv(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"data\.txt is .*convert it to text") as raised:
        read(tmp_path, source="files", paths="data.txt")
    assert "iconv" not in str(raised.value)


TEXTS = ["naïve text", "日本語", "x" * 300]
IDS = [list(text.encode()) for text in TEXTS]


def nanogpt(path: Path) -> None:
    """Write tokens as data/openwebtext/prepare.py does: every document and its end, uint16, nothing else."""
    np.array([token for ids in IDS for token in (*ids, END)], dtype=np.uint16).tofile(path)


def llm_c(path: Path) -> None:
    """Write tokens as dev/data of llm.c does: 256 int32, then documents that begin with the end of text."""
    tokens = np.array([token for ids in IDS for token in (END, *ids)], dtype=np.uint16)
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + tokens.tobytes())


def megatron(path: Path) -> None:
    """Write tokens by the format's definition: the last document has two sequences, which lie in the file in another
    order."""
    sequences = [[*IDS[0], END], [*IDS[1], END], IDS[2][:100], [*IDS[2][100:], END]]
    order = [3, 0, 2, 1]
    offsets, content = [0] * 4, b""
    for place in order:
        offsets[place] = len(content)
        content += np.array(sequences[place], dtype=np.int32).tobytes()
    path.write_bytes(content)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(sequences), 4)
    lengths = np.array([len(each) for each in sequences], dtype=np.int32).tobytes()
    places, bounds = np.array(offsets, dtype=np.int64).tobytes(), np.array([0, 1, 2, 4], dtype=np.int64).tobytes()
    path.with_suffix(".idx").write_bytes(head + lengths + places + bounds)


@pytest.mark.parametrize("write", [nanogpt, llm_c, megatron])
def test_token_files_are_the_text_that_they_were_made_of(write: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.bin")
    found = read(tmp_path, source="tokens", paths=".")
    assert [text for text in found if text] == TEXTS


def test_tokens_that_are_prepared_are_those_of_the_file(tmp_path: Path, texts: list[str]) -> None:
    tokenizer = train(texts, 300)
    end = tokenizer.token_to_id(EOS)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    written = {tuple(tokenizer.encode(text).ids) for text in texts}
    np.array([token for ids in written for token in (*ids, end)], dtype=np.uint16).tofile(tmp_path / "all.bin")
    spec = parse({"source": "tokens", "paths": "all.bin", "tokenizer": {"kind": "file", "path": "tokenizer.json"}})
    corpus = prepare(spec, tmp_path / "data", tmp_path)
    assert isinstance(corpus, Corpus)
    tokens, offsets = corpus.tokens("train").tolist(), corpus.document_offsets("train").tolist()
    found = {tuple(tokens[a : b - 1]) for a, b in pairwise(offsets)}
    assert found <= written and len(found) > 40
    # The same text in another format is the same corpus.
    (tmp_path / "same.jsonl").write_text(
        "".join(json.dumps({"text": tokenizer.decode(list(ids), skip_special_tokens=False)}) + "\n" for ids in written)
    )
    again = parse({"source": "files", "paths": "same.jsonl", "tokenizer": {"kind": "file", "path": "tokenizer.json"}})
    assert identify(again, tmp_path).digest == corpus.digest


def test_another_tokenizer_reads_the_text_and_not_the_ids(tmp_path: Path) -> None:
    nanogpt(tmp_path / "train.bin")
    spec = parse({"source": "tokens", "paths": "train.bin", "tokenizer": "bytes"})
    assert isinstance(spec, TextSource)
    other = spec.tokenised_by(tokenizer_of({"kind": "bpe", "vocab_size": 300}))
    assert [text for text in other.documents(tmp_path) if text] == TEXTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "whole number of uint16 ids"),
        (
            lambda path: path.write_bytes(np.array([400, END], dtype=np.uint16).tobytes()),
            "the id 400, but the tokenizer",
        ),
        (lambda path: path.with_suffix(".idx").write_bytes(b"MMIDX"), "is not a Megatron index"),
        (lambda path: llm_c(path) or path.write_bytes(path.read_bytes()[:-2]), "its header says"),
    ],
)
def test_damaged_token_files_are_one_line(change: Any, message: str, tmp_path: Path) -> None:
    nanogpt(tmp_path / "train.bin")
    change(tmp_path / "train.bin")
    with pytest.raises(DataError, match=message):
        read(tmp_path, source="tokens", paths="*.bin")


def test_a_short_data_file_beside_an_index_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    megatron(path)
    path.write_bytes(path.read_bytes()[: -4 * 50])
    with pytest.raises(DataError, match="shorter than"):
        list(documents(path, "uint16", END, 257))


def test_the_text_s_own_tokenizer_cannot_have_made_tokens(tmp_path: Path) -> None:
    nanogpt(tmp_path / "train.bin")
    with pytest.raises(DataError, match=r"data\.encoder"):
        read(tmp_path, source="tokens", paths="*.bin", tokenizer={"kind": "bpe", "vocab_size": 300})


def test_a_mixture_has_its_shares(tmp_path: Path) -> None:
    for name, size in (("many", 40), ("few", 400)):
        lines = (json.dumps({"text": f"{name} {i} " + "x" * size}) + "\n" for i in range(4000 // size))
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    parts = [
        {"data": {"source": "files", "paths": f"{name}.jsonl"}, "weight": w} for name, w in (("many", 3), ("few", 1))
    ]
    found = read(tmp_path, source="mixture", parts=parts)
    sizes = {name: sum(len(text) for text in found if text.startswith(name)) for name in ("many", "few")}
    assert sizes["many"] / sizes["few"] == pytest.approx(3, rel=0.35)  # to within a document of the larger kind
    assert abs(sizes["many"] / 3 - sizes["few"]) < 420
    assert found == read(tmp_path, source="mixture", parts=parts)
    heavier = [parts[0] | {"weight": 6.0}, parts[1]]
    digests = {identify(parse({"source": "mixture", "parts": each}), tmp_path).digest for each in (parts, heavier)}
    assert len(digests) == 2


def test_a_mixture_of_datasets_is_known_without_reading_them() -> None:
    commit = "0" * 40
    data = [{"data": {"source": "hf", "path": name, "revision": commit}, "weight": 1} for name in ("a/b", "c/d")]
    mixture = parse({"source": "mixture", "parts": data})
    assert isinstance(mixture, TextSource)
    assert str(mixture.fingerprint()).count(commit) == 2
    newest = [{"data": {"source": "hf", "path": name}, "weight": 1} for name in ("a/b", "c/d")]
    unpinned = parse({"source": "mixture", "parts": newest})
    assert isinstance(unpinned, TextSource)
    meta = text_meta_of(spec=unpinned.model_dump(mode="json"), content=str(mixture.fingerprint()))
    assert unpinned.pinned([text_meta_of(), meta]) == mixture  # the commits that were prepared, so that no hub is asked
    with pytest.raises(ValueError, match=r"data\.encoder is required in a mixture"):
        own = {"source": "tokens", "paths": "a.bin"}
        parse({"source": "mixture", "parts": [{"data": own, "weight": 1}, data[1]]})
    with pytest.raises(ValueError, match=r"data\.tokenizer applies to the whole mixture"):
        own = {"source": "stdlib", "tokenizer": "bpe"}
        parse({"source": "mixture", "parts": [{"data": own, "weight": 1}, data[1]]})


def test_a_mistake_in_a_mixture_is_named_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "question: q\nbase: {preset: small, d_model: 32, n_layers: 1}\narms: {post: {block.norm_placement: post}}\n"
        "data: {source: mixture, parts: [{data: {source: filez, paths: a}, weight: 3},"
        " {data: {source: files, pats: b}, weight: 1}]}\ntrain: {context: 32}\nbudget: {tokens: 1000}\n"
    )
    with pytest.raises(StudyError) as caught:
        load_study(path, "cpu")
    assert [str(problem).partition("yaml:")[2] for problem in caught.value.problems] == [
        "4:49: data.parts.0.data.source: unknown source 'filez' (did you mean 'files'?)",
        "4:86: data.parts.1.data.paths: is missing",
        "4:102: data.parts.1.data.pats: unknown key (did you mean 'paths'?)",
    ]


def test_a_tokenizer_of_the_hub_is_the_file_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    byte_tokenizer().save(str(path))
    asked: list[tuple[str, str, str | None]] = []

    def download(name: str, file: str, revision: str | None) -> str:
        asked.append((name, file, revision))
        return str(path)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    theirs = tokenizer_of({"kind": "hf", "name": "me/mine", "revision": "v1"})
    ours = tokenizer_of({"kind": "file", "path": str(path)})
    assert theirs.identity(Path()) == ours.identity(Path())
    assert theirs.vocabulary(Path()) == 257
    assert asked == [("me/mine", "tokenizer.json", "v1")]


def test_without_a_network_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    spec = parse({"source": "stdlib", "tokenizer": {"kind": "hf", "name": "me/elsewhere"}})
    with pytest.raises(DataError, match=r"me/elsewhere: no route to host\. Without a network, .*kind: file") as caught:
        identify(spec)
    assert "\n" not in str(caught.value)


def by_ranks(text: str, ranks: dict[bytes, int], pattern: str) -> list[int]:
    """tiktoken's algorithm, slowly: in each word the adjacent pair whose union ranks lowest merges first."""
    found = []
    for word in regex.findall(pattern, text):
        parts = [bytes([byte]) for byte in word.encode()]
        if word.encode() in ranks:
            parts = [word.encode()]
        while True:
            known = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]
            if not known:
                break
            _, place = min(known)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        found += [ranks[part] for part in parts]
    return found


@pytest.mark.parametrize(
    "words", [name if name == "cl100k_base" else pytest.param(name, marks=pytest.mark.slow) for name in PATTERNS]
)
def test_ranks_of_tiktoken(words: str, texts: list[str], tmp_path: Path) -> None:
    learnt = train(texts, 600)
    tokens = sorted((index, token) for token, index in learnt.get_vocab().items() if token != EOS)
    spelt = {
        learnt.decode([index]).encode(): token for index, token in tokens if "\ufffd" not in learnt.decode([index])
    }
    names = [bytes([byte]) for byte in range(256)] + [token for token in spelt if len(token) > 1] + [b"  sat on"]
    ranks = {token: rank for rank, token in enumerate(names)}
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    (tmp_path / "own.tiktoken").write_text("".join(lines))
    spec = parse(
        {"source": "stdlib", "tokenizer": {"kind": "tiktoken", "path": "own.tiktoken", "words": words}}
    ).tokenizer  # type: ignore[attr-defined]
    encoder = spec.encoder((), tmp_path)
    assert encoder.eos == len(ranks) == spec.vocabulary(tmp_path) - 1
    for text in [*texts, f"It's 12345 {EOS}\r\n\n  they'LL  go"]:
        (ids,) = encoder.encode([text.encode()])
        assert ids.tolist() == by_ranks(text, ranks, PATTERNS[words])
        assert Tokenizer.from_str(encoder.tokenizer.to_str()).decode(ids.tolist(), skip_special_tokens=False) == text
    (ids, sizes), *_ = encoder.encode_with_bytes([texts[0].encode()])
    assert sizes.sum() == len(texts[0].encode())


def test_a_file_that_is_no_tiktoken_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.tiktoken"
    spec = tokenizer_of({"kind": "tiktoken", "path": str(path)})
    for content, message in (("aGk= 0\n", "no token for the byte 0"), ("hello\n", "base64 and a number")):
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            spec.identity(Path())
