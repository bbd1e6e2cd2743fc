"""An imported model is scored as lm-eval's `hf` scores the folder that it came from: BOS, whole texts, generated text,
chat templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

import ablate
from ablate.data import Corpus, open_corpus
from ablate.training.trained import published_tokenizer, trained_model
from evals.conventions import Bos
from evals.harness.lm import ZooLM
from evals.harness.lm_eval_model import SavedZooLM
from evals.harness.published import Published
from evals.reading.windows import stretches
from store import Store
from store.errors import ArgumentError
from tests.evals.bytelevel import byte_level
from zoo.model import Decoder

CONTEXT = 48
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% if not loop.last or"
    " add_generation_prompt %}\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PAIRS = [
    ("The cat", " sat on the mat"),
    ("", "nothing before"),
    ("in the " * 30, "a long context"),
    ("spaces  ", "after"),
    ("the", "n a token that spans the end"),
    ("<s>already there", " once"),
]
TEXTS = ["The cat sat on the mat", "", "in the " * 30, "<s>begun"]
GREEDY = {"until": ["zz"], "max_gen_toks": 8, "do_sample": False}


def _tokenizer(begins: bool) -> PreTrainedTokenizerFast:
    tokenizer = byte_level([("t", "h"), ("th", "e"), ("the", "n"), ("i", "n")])
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in ("<eos>", "<s>", "<end>")])
    first = tokenizer.token_to_id("<s>")
    if begins:
        tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", first)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<eos>", chat_template=TEMPLATE
    )


def _made(folder: Path, begins: bool) -> Path:
    """A small Llama whose texts begin with a BOS, or do not, and end with either of two tokens."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = LlamaConfig(
            vocab_size=264,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            initializer_range=0.3,
            bos_token_id=261,
            eos_token_id=256,
        )
        model = AutoModelForCausalLM.from_config(config)
    model.generation_config = GenerationConfig(eos_token_id=[256, 262], bos_token_id=261, repetition_penalty=1.3)
    model.save_pretrained(folder)
    _tokenizer(begins).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=[True, False], ids=["begins", "bare"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory.mktemp("elsewhere") / "llama", request.param)


@pytest.fixture(scope="module")
def imported(folder: Path) -> ablate.Imported:
    return _imported(folder, folder.parent / "runs")


def _imported(folder: Path, store: Path, **settings: Any) -> ablate.Imported:
    """Beside a text of its own: the default one takes ten seconds to tokenise."""
    text = folder.parent / "text.txt"
    words = np.random.default_rng(0).choice(["the", "then", "thin", "in", "a", "cat", "sat", "on", "mat"], 20_000)
    text.write_text("\n\n".join(" ".join(words[i : i + 50]) for i in range(0, len(words), 50)))
    return ablate.import_model(
        folder,
        text=[str(text)],
        context=CONTEXT,
        measure=False,
        store=store,
        progress=False,
        **(settings or {"tasks": ["heldout_text"], "limit": 2}),
    )


def _theirs(folder: Path, bos: Bos) -> HFLM:
    given = {} if bos == "auto" else {"add_bos_token": bos == "on"}
    return HFLM(pretrained=str(folder), batch_size=1, max_length=CONTEXT, device="cpu", dtype="float32", **given)


@pytest.fixture(params=["auto", "on", "off"])
def pair(request: pytest.FixtureRequest, imported: ablate.Imported, folder: Path) -> tuple[ZooLM, HFLM]:
    """Ours over the run in the store, and lm-eval's over the folder."""
    bos: Bos = request.param
    store = Store(imported.store)
    run = store.read_run(imported.digest)
    assert run is not None
    published = published_tokenizer(store, run)
    assert published is not None
    model: Decoder = trained_model(store, run.digest)
    ours = ZooLM(model, Published.read(published, bos), context=CONTEXT, batch=4)
    return ours, _theirs(folder, bos)


def _asked(kind: str, arguments: list[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def test_likelihoods_are_lm_evals(pair: tuple[ZooLM, HFLM]) -> None:
    ours, theirs = pair
    asked = _asked("loglikelihood", list(PAIRS))
    for found, expected in zip(ours.loglikelihood(asked), theirs.loglikelihood(asked, disable_tqdm=True), strict=True):
        assert found == (pytest.approx(expected[0], abs=1e-4), expected[1])


def test_whole_texts_are_lm_evals(pair: tuple[ZooLM, HFLM]) -> None:
    ours, theirs = pair
    asked = _asked("loglikelihood_rolling", [(text,) for text in TEXTS])
    expected = theirs.loglikelihood_rolling(asked, disable_tqdm=True)
    assert ours.loglikelihood_rolling(asked) == pytest.approx(expected, abs=1e-4)


def test_generated_texts_are_lm_evals(pair: tuple[ZooLM, HFLM]) -> None:
    """Prompts of all lengths: some end with either token, some are cut."""
    ours, theirs = pair
    prompts = [chr(letter) * (letter % 7 + 1) for letter in range(ord("a"), ord("z"))] + ["in the " * 30]
    asked = _asked("generate_until", [(prompt, dict(GREEDY)) for prompt in prompts])
    expected = theirs.generate_until(asked, disable_tqdm=True)
    assert ours.generate_until(asked) == expected
    assert len(set(expected)) > 5


def test_conversations_are_lm_evals(pair: tuple[ZooLM, HFLM]) -> None:
    ours, theirs = pair
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The cat?"}]
    for prompted in (True, False):
        text = ours.apply_chat_template(turns, prompted)
        assert text == theirs.apply_chat_template(turns, prompted)
        assert ours.tok_encode(text) == theirs.tok_encode(text)


def test_the_custom_is_seen_by_the_scores(folder: Path, imported: ablate.Imported) -> None:
    """On text of the project's own: without a BOS, with one, and as lm-eval would."""
    assert imported.scores is not None

    def bits(**settings: Any) -> float:
        found = ablate.evaluate(
            imported.digest, tasks=["heldout_text"], limit=2, store=imported.store, progress=False, **settings
        )
        return float(found.frame.filter(metric="bits_per_byte")["value"][0])

    automatic, on, off = (bits(bos=each) for each in ("auto", "on", "off"))
    begins = bool(AutoTokenizer.from_pretrained(folder).encode(""))
    assert automatic == (on if begins else off)
    assert on != off
    own = imported.scores.frame.filter(metric="bits_per_byte")["value"][0]
    assert own == automatic


@pytest.mark.parametrize("bos", ["auto", "on", "off"])
def test_windows_of_held_out_text_are_read_as_lm_eval_reads_a_text(folder: Path, bos: Bos, tmp_path: Path) -> None:
    """Their loss when the model comes in, and by position: after the BOS where there is one, else after the token that
    a window begins with."""
    found = _imported(folder, tmp_path / "runs", bos=bos, positions={"multiples": [1], "tokens": CONTEXT})
    store, theirs = Store(found.store), _theirs(folder, bos)
    run = store.read_run(found.digest)
    assert run is not None
    corpus = open_corpus(store.data(run.data.digest).path)
    assert isinstance(corpus, Corpus)

    def nats(window: list[int], scored: int) -> float:
        reads = [*(theirs.tok_encode("") or window[:1]), *window[1:]]
        ((total, _),) = theirs._loglikelihood_tokens([(("", ""), reads[:-scored], reads[-scored:])], disable_tqdm=True)
        return -float(total)

    (held_out,) = corpus.held_out_rows("test", CONTEXT)
    windows = np.asarray(held_out.rows).tolist()
    assert found.result.loss == pytest.approx(np.mean([nats(row, CONTEXT) for row in windows]) / CONTEXT, rel=1e-5)
    assert found.scores is not None
    (stretch,) = found.scores.found.sections["positions"].rows[-1:]
    assert stretch["last"] == CONTEXT
    last = found.scores.frame.filter(metric="loss_1x")["value"][0]
    start = stretches(len(corpus.tokens("test")), [CONTEXT], CONTEXT, 0).starts[0]
    window = corpus.tokens("test")[start : start + CONTEXT + 1].tolist()
    assert last == pytest.approx(nats(window, CONTEXT // 4) / (CONTEXT // 4), rel=1e-5)


def test_each_custom_is_a_run_of_its_own_and_an_older_one_is_kept(folder: Path, imported: ablate.Imported) -> None:
    """Without a BOS the windows are those of versions that knew none, and so is the run's digest."""
    begins = bool(AutoTokenizer.from_pretrained(folder).encode(""))
    automatic, on, off = (
        _imported(folder, imported.store, bos=each, positions=True).digest for each in ("auto", "on", "off")
    )
    assert automatic == imported.digest == (on if begins else off)
    assert on != off
    run = Store(imported.store).read_run(off)
    assert run is not None and "begins" not in run.model_dump(mode="json")


def test_other_conventions_are_another_run(folder: Path, imported: ablate.Imported, tmp_path: Path) -> None:
    changed = _made(tmp_path / "llama", begins=True)
    (changed / "generation_config.json").write_text('{"eos_token_id": 256}')
    other = _imported(changed, tmp_path / "runs")
    assert other.digest != imported.digest


def test_tasks_as_conversations(imported: ablate.Imported) -> None:
    asked: dict[str, Any] = {"tasks": ["heldout_pairs"], "limit": 4, "store": imported.store, "progress": False}
    plain, chat = (ablate.evaluate(imported.digest, **asked, chat_template=each) for each in (False, True))
    assert chat.found.request["chat_template"] is True
    assert plain.found.scores.keys() == chat.found.scores.keys()


def test_lm_evals_own_command_line_reads_it_so_too(imported: ablate.Imported, pair: tuple[ZooLM, HFLM]) -> None:
    ours, _ = pair
    assert isinstance(ours.conventions, Published)
    lm = SavedZooLM(str(imported.store / imported.digest), device="cpu", bos=ours.conventions.bos)
    asked = _asked("loglikelihood", list(PAIRS))
    assert [p for p, _ in lm.loglikelihood(asked)] == pytest.approx([p for p, _ in ours.loglikelihood(asked)], abs=1e-4)


def test_a_word_that_is_none_of_the_three(imported: ablate.Imported) -> None:
    with pytest.raises(ArgumentError, match="bos"):
        ablate.evaluate(imported.digest, tasks=["heldout_text"], bos="maybe", store=imported.store)
