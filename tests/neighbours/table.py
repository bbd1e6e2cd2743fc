"""Neighbours' files and configs: what other people's programs write, each with what becomes of it and the test that
shows it. `exact` is converted with the numbers of the library that wrote it; `refused` is one line with file and
remedy. A new neighbour is a line here."""

from __future__ import annotations

from typing import Literal, NamedTuple

HF, DATA = "tests/zoo/hf/", "tests/data/"
FILES = f"{DATA}test_neighbours.py::"
CONFIGS, HOSTILE = f"{HF}test_published.py::", f"{HF}test_hostile_folders.py::"
SCALING = "tests/zoo/test_positions_scaling.py::"
TASKS = "tests/evals/harness/"
PLACES = "tests/ablate/test_surroundings.py::"
PUBLISHED = f"{CONFIGS}test_a_published_config_is_converted_exactly"
WRAPPED = f"{HF}test_wrappers.py::test_the_language_model_inside_has_the_logits_of_the_whole"
TEXT_ONLY = f"{HF}test_wrappers.py::test_weights_of_other_parts_may_be_missing_or_unknown"
DAMAGED = f"{HOSTILE}test_a_damaged_checkpoint_is_one_line"
NO_CONFIG = f"{HOSTILE}test_a_tokenizer_config_that_is_none_is_one_line"
REMOTE = f"{HF}test_remote.py::"
MERGED = f"{HF}test_adapters.py::test_a_merged_adapter_has_pefts_own_logits"
UNMERGED = f"{HF}test_adapters.py::test_what_cannot_be_merged_is_named"
BROKEN_ADAPTER = f"{HF}test_adapters.py::test_a_damaged_adapter_is_one_line"
COLUMNS = f"{FILES}test_what_has_columns_is_read_by_its_content"
TEXTS = f"{FILES}test_texts_are_read_exactly"
UNREAD = f"{FILES}test_what_cannot_be_read_is_one_line"
MISSING = f"{FILES}test_what_is_missing_is_told_with_what_was_looked_for"
IDS = f"{FILES}test_raw_ids_of_another_type_are_refused_with_that_which_fits"
PIECES = f"{DATA}test_sentencepiece.py::"
SPLIT = f"{DATA}test_split.py::"
LM_EVAL = "tests/ablate/test_conventions.py::"
BROUGHT = "tests/neighbours/test_brought.py::"


class Neighbour(NamedTuple):
    """What somebody brings, what becomes of it, and the test that shows it: a test, or one of its parameters."""

    what: str
    becomes: Literal["exact", "refused"]
    test: str


def exact(what: str, *tests: str) -> list[Neighbour]:
    return [Neighbour(what, "exact", test) for test in tests]


def refused(what: str, *tests: str) -> list[Neighbour]:
    return [Neighbour(what, "refused", test) for test in tests]


KEYS: dict[str, str] = {
    "minimax_m2": "attn_type_list rotary_dim scoring_func qk_norm_type use_qk_norm use_routing_bias use_mtp"
    " num_mtp_modules mtp_transformer_layers",
    "kimi_linear": "mla_use_nope moe_layer_freq moe_router_activation_func rope_theta use_grouped_topk",
    "glm_moe_dsa": "moe_layer_freq moe_router_dtype rope_interleave indexer_rope_interleave index_topk_freq",
    "deepseek_v32": "moe_layer_freq",
    "nemotron_h": "attention_head_dim rms_norm_eps",
    "ernie4_5_moe": "moe_capacity moe_gate moe_use_aux_free num_nextn_predict_layers",
    "minimax": "attn_type_list postnorm rotary_dim shared_moe_mode",
    "jamba": "n_ctx num_logits_to_keep",
    "cohere2": "layer_switch",
    "dots1": "scoring_func",
    "mamba": "fused_add_norm n_layer pad_vocab_size_multiple rms_norm",
    "llama_unsloth": "unsloth_fixed unsloth_version use_flash_attn",
}
"""Keys that publishers write and that transformers' code of the model does not read, by published config."""

CHECKPOINTS = [
    *(each for name, keys in KEYS.items() for each in exact(f"{name}: {keys}", f"{PUBLISHED}[{name}]")),
    *exact("a list of one number for each layer, Hunyuan's moe_topk", f"{PUBLISHED}[hunyuan_v1_moe]"),
    *exact("said once", f"{CONFIGS}test_keys_that_nobody_declares_are_said_once"),
    *refused("a key that the code reads", f"{CONFIGS}test_a_key_that_means_something_is_refused_in_one_line"),
    *refused("a conversion with other logits", f"{CONFIGS}test_a_conversion_proves_itself"),
    *refused("a family of transformers that is not converted", f"{HF}test_missing_families.py"),
    *(
        each
        for name in ("gemma3", "idefics3", "mistral3", "qwen3_5_moe", "nemotron_h_omni", "voxtral")
        for each in exact(f"the language model inside {name}", f"{WRAPPED}[{name}]")
    ),
    *exact("the language model without its towers", TEXT_ONLY),
    *exact("YaRN with beta_fast = beta_slow", f"{PUBLISHED}[kimi_k2]"),
    *exact(
        "its frequencies",
        f"{SCALING}test_kimi_k2_steps_from_kept_to_interpolated_frequencies",
    ),
    *exact("llama3 scaling with equal factors", f"{PUBLISHED}[llama_equal_bounds]"),
    *exact("Gemma 3's vocabulary from 4B up", f"{BROUGHT}test_gemma_3_has_the_vocabulary_of_transformers"),
    *refused("a resized embedding, a NaN, an index without files or with files elsewhere", DAMAGED),
    *exact("only tokenizer.model", f"{BROUGHT}test_a_checkpoint_with_only_a_model_of_sentencepiece_reads_text"),
    *exact("only vocab.json and merges.txt", f"{DATA}test_transformers_tokenizer.py::test_vocab_and_merges"),
    *(
        each
        for name in ("[[]]", "[null]", '[{"eos_token": "\\xe9"}]', "[content3]")
        for each in refused(f"a tokenizer_config.json of {name}", NO_CONFIG + name)
    ),
    *refused("quantised weights", f"{HF}test_folder.py::test_quantised_weights_are_refused"),
    *refused(
        "code of its own, pickles that run code",
        f"{HOSTILE}test_a_hostile_folder_is_refused_and_runs_nothing",
    ),
    *exact("an export's token_type_ids and masks", f"{REMOTE}test_padding_and_types_of_an_encoders_tokens_are_heeded"),
    *exact("every argument of an export, or one line", f"{REMOTE}test_every_argument_is_used_or_refused"),
    *exact("an export's generation, with a cache", f"{REMOTE}test_generation_reads_each_token_once"),
]
ADAPTERS = [
    *exact("PiSSA", f"{MERGED}[PiSSA]"),
    *exact("OLoRA", f"{MERGED}[OLoRA]"),
    *exact("LoRA on a tied head", f"{MERGED}[a tied head]", f"{MERGED}[a tied head and its table]"),
    *exact("target_parameters", f"{MERGED}[experts]"),
    *exact("DoRA, biases, trained modules and tokens", MERGED),
    *exact("adapter_model.bin", f"{HF}test_adapters.py::test_weights_in_a_pickle_are_read_without_its_code"),
    *refused("aLoRA, layer_replication, pissa_niter, IA3, unknown keys", UNMERGED),
    *refused("cut tensors", f"{BROKEN_ADAPTER}[cut]"),
    *refused("missing tensors", f"{BROKEN_ADAPTER}[a tensor is missing]"),
    *refused("a NaN", f"{BROUGHT}test_an_adapter_with_a_nan_is_one_line"),
]
TEXT = [
    *exact("C4's shards", f"{COLUMNS}[c4-train.00000-of-01024.json.gz]"),
    *exact("a folder of them", f"{FILES}test_a_folder_of_shards_is_read_as_it_is"),
    *exact("Dolma's files, JSON lines called .json", f"{COLUMNS}[dolma.json]"),
    *exact("an array of JSON", f"{COLUMNS}[array.json]", f"{COLUMNS}[indented.json]"),
    *exact(".JSONL", f"{COLUMNS}[NAME.JSONL]"),
    *exact(".csv and .tsv", f"{COLUMNS}[comma.csv]", f"{COLUMNS}[tab.tsv]"),
    *exact("cells as polars writes them", f"{FILES}test_tables_are_those_of_polars"),
    *refused("a column that nothing uses", f"{FILES}test_a_column_that_nothing_uses_is_refused"),
    *exact("a byte-order mark", f"{TEXTS}[mark.txt]", f"{COLUMNS}[mark.jsonl]"),
    *exact("UTF-16", f"{TEXTS}[wide.txt]", f"{COLUMNS}[wide.jsonl]"),
    *exact("CR line ends", f"{TEXTS}[old_mac.txt]", f"{COLUMNS}[old_mac.jsonl]"),
    *exact("one line of 700 kB", f"{SPLIT}test_one_line_is_cut_where_it_can_be"),
    *exact("a document of 5 MB among notes", f"{SPLIT}test_a_document_larger_than_the_parts_is_cut"),
    *refused(
        "a .zst that was cut, the last of many frames lost", f"{UNREAD}[cut.txt.zst]", f"{UNREAD}[cut_last.txt.zst]"
    ),
    *refused("a .tar cut at a member", f"{UNREAD}[cut_at_member.tar]"),
    *refused("a .tar with a broken header", f"{UNREAD}[broken_header.tar]"),
    *refused("a .tar.zst that was cut", f"{UNREAD}[cut.tar.zst]", f"{UNREAD}[cut_before_packing.tar.zst]"),
    *refused("links in a .tar", f"{DATA}test_formats.py::test_a_link_in_a_tar_is_named"),
    *exact("zstd with a long window", f"{FILES}test_a_long_window_of_zstd_is_read"),
    *refused("a .gz of broken bytes", f"{UNREAD}[broken.txt.gz]"),
    *refused("JSON nested 100,000 deep", f"{UNREAD}[deep.jsonl]", f"{UNREAD}[deeper.jsonl]"),
    *refused(
        "Megatron's counts, negative and huge",
        f"{FILES}test_a_damaged_index_of_megatron_is_one_line",
    ),
    *refused("raw uint32 read as uint16", f"{IDS}[uint16-uint32]"),
    *refused("raw int64 read as uint16", f"{IDS}[uint16-int64]"),
    *exact("the dtype that fits", f"{IDS}[uint32-uint32]", f"{IDS}[int64-int64]"),
    *exact(".npy", f"{FILES}test_arrays_of_numpy_are_read"),
    *exact("[v2] in a folder's name", f"{FILES}test_a_folder_s_name_is_no_pattern[data[v2]]"),
    *refused("an absent file", f"{MISSING}[absent]"),
    *refused("an absent folder", f"{MISSING}[folder]"),
    *refused("a glob without matches", f"{MISSING}[glob]"),
    *refused("a file that grows", f"{DATA}test_prepare.py::test_text_that_changes_meanwhile_is_noticed"),
    *exact("what was taken, before training", "tests/ablate/test_receipt.py", "tests/neighbours/test_walk.py"),
]
PIECES_OF_TEXT = [
    *exact("newline as a user-defined symbol", f"{PIECES}test_models_of_sentencepiece[newlines]"),
    *exact("leading newlines and tabs under nfkc and identity", f"{PIECES}test_leading_newlines_and_tabs_are_kept"),
    *exact("generated models and texts", f"{PIECES}test_ids_of_generated_models_and_texts"),
    *refused(
        "models of words or characters", f"{PIECES}test_models_of_sentencepiece_that_are_not_converted_are_one_line"
    ),
]
EVALUATIONS = [
    *exact("a checkpoint with a BOS: likelihoods", f"{LM_EVAL}test_likelihoods_are_lm_evals[begins-auto]"),
    *exact("whole texts", f"{LM_EVAL}test_whole_texts_are_lm_evals[begins-auto]"),
    *exact("generated texts", f"{LM_EVAL}test_generated_texts_are_lm_evals[begins-auto]"),
    *exact("chat templates", f"{LM_EVAL}test_conversations_are_lm_evals[begins-auto]"),
    *exact("held-out windows", f"{LM_EVAL}test_windows_of_held_out_text_are_read_as_lm_eval_reads_a_text[begins-auto]"),
    *exact("RoPE that depends on the length", f"{TASKS}test_batch_independence.py::test_positions_and_mixers"),
    *refused("num_beams", f"{TASKS}test_failing_tasks.py::test_settings_that_are_not_supported_are_named"),
    *refused(
        "a task whose own code raises",
        f"{TASKS}test_failing_tasks.py::test_code_that_raises_is_named_and_the_group_is_of_the_others",
    ),
    *exact("mmlu_early_training", f"{TASKS}test_choices.py::test_lm_evals_task_for_early_training"),
]
SURROUNDINGS = [
    *exact(
        "files named like packages",
        f"{PLACES}test_a_study_runs_beside_files_named_like_packages",
    ),
    *exact("closed streams", f"{PLACES}test_a_refusal_is_said_where_output_is_closed"),
    *exact("files written into the current folder", "tests/ablate/wings/designs/test_promoting.py"),
]
NEIGHBOURS = [*CHECKPOINTS, *ADAPTERS, *TEXT, *PIECES_OF_TEXT, *EVALUATIONS, *SURROUNDINGS]
