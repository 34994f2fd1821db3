#!/usr/bin/env python3
"""Writes tokenizers.json beside this file: tiny tokenizers of the forms that models have, and what
Hugging Face's `tokenizers` (pip install tokenizers) makes of texts that are hard to cut."""
import copy
import json
import os

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TRAINED_ON = ["the geese fly in a line, and the line doesn't stop: when one tires, it's relieved.",
              "they'll re-form; we've seen 1234 of them, year 2026 (or so). Über die Gänse?",
              "    if (x == 10) {\n        return y;\n    }\n\n", "гуси летят", "雁が飛ぶ"]
MERGES = 70

TEXTS = ["", " ", "  ", "   a", "a   ", "the geese", " the geese fly", "The GEESE'S line's we'LL",
         "don't I'M you'RE", "1234567 12 1.5e-3", "x\n\ny \n z\r\n\r\n  w\t\tq", "\n \n", " \u00a0 a\u2003b",
         "Über façade naïve", "U\u0308ber fac\u0327ade e\u0301\u0323", "гуси летят 雁が飛ぶ١٢٣ Ⅻ ½",
         "👩‍👩‍👧 flag 🇩🇪!", "a<|end|>b", "<|end|><|end|> the", "<|end", "<think> x </think>y",
         "if (x == 10) {\n        return y;", "\u0000\u0001\u007f", "ſ 'ſ K \u212a", "___--//", "aaaaaaaaaaaa",
         "\u180e \u200b \ufeff", "￿𝟘𝟙 ①②", "한국어 각", "'s 't 'll's", "ab<s>", "<s>ab<ab<s"]

LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")


def split(expression):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def template(token):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [token], "tokens": ["<|end|>"]}}}


def added(token, content, is_normalized):
    return {"id": token, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": is_normalized, "special": False}


def main():
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(TRAINED_ON, trainers.BpeTrainer(
        vocab_size=257 + MERGES, special_tokens=["<|end|>"], initial_alphabet=alphabet))
    base = json.loads(trained.to_str())
    token = trained.token_to_id("<|end|>")
    base["added_tokens"].append(added(257 + MERGES, "<think>", True))
    digits = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    literal = split("").copy()
    literal["pretokenizers"] = [{"type": "Split", "pattern": {"String": "(x"},
                                 "behavior": "Isolated", "invert": False}, *split("")["pretokenizers"][1:]]
    spaced = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    # As the file that was published with GPT-2: None stands for a field that is left out.
    untyped = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
               "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
               "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
               "model": {"type": None, "byte_fallback": None, "ignore_merges": None,
                         "continuing_subword_prefix": "", "end_of_word_suffix": ""}}
    base["model"]["merges"] = [" ".join(pair) if isinstance(pair, list) else pair
                               for pair in base["model"]["merges"]]
    changes = {
        "gpt2": {},
        "untyped": untyped,
        "llama3": {"pre_tokenizer": split(LLAMA), "post_processor": {
            "type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
                 "use_regex": True}, template(token)]}, "model": {"ignore_merges": True}},
        "qwen2": {"pre_tokenizer": split(QWEN), "normalizer": {"type": "NFC"}},
        "smollm": {"pre_tokenizer": digits},
        "spaced": {"pre_tokenizer": spaced},
        "literal": {"pre_tokenizer": literal},
        # A normalized one is looked for in what the others leave.
        "overlapping": {"added_tokens": [*base["added_tokens"], added(328, "ab<", True), added(329, "<s>", False)]},
    }
    expected = {}
    for name, change in changes.items():
        made = copy.deepcopy(base)
        model = {**base["model"], **change.get("model", {})}
        made["model"] = {key: value for key, value in model.items()
                         if value is not None or key not in change.get("model", {})}
        made.update({key: value for key, value in change.items() if key != "model"})
        tokenizer = Tokenizer.from_str(json.dumps(made))
        expected[name] = [tokenizer.encode(text).ids for text in TEXTS]
    rows = [f' {json.dumps(name)}: {json.dumps(value, ensure_ascii=True)}'
            for name, value in (("base", base), ("changes", changes), ("texts", TEXTS),
                                ("expected", expected))]
    with open(os.path.join(HERE, "tokenizers.json"), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(rows) + "\n}\n")


main()
