"""Checkpoints of every layout that is read, as file name -> bytes; {base} in them stands for the folder of a base."""

import hashlib
import json


def _json(value) -> bytes:
    return json.dumps(value).encode()


WEIGHTS = b"weights"
CONFIG = {"model_type": "bert", "hidden_size": 8, "max_position_embeddings": 64, "vocab_size": 30}
SETTINGS = {
    "format_version": 1, "family": "snippets", "max_views": 4, "pooling": "cls", "normalise": True,
    "similarity": "cosine", "temperature": 0.05, "lengths": {"document": 48, "query": 32},
    "prompts": {"document": "d: ", "query": "q: "}, "label": "small",
}  # fmt: skip
ADAPTER = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "bias": "none", "base_model_name_or_path": "{base}"}
BASE = {"source": "{base}", "weights": {"model.safetensors": hashlib.sha256(WEIGHTS).hexdigest()}}
_PLAIN = {"config.json": _json(CONFIG), "model.safetensors": WEIGHTS, "tokenizer.json": b"{}"}
_MODULES = [
    {"idx": row, "name": str(row), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for row, (kind, path) in enumerate([("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")])
]
_POOLING = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
_SENTENCE = {
    "modules.json": _json(_MODULES),
    "1_Pooling/config.json": _json(_POOLING),
    "sentence_bert_config.json": _json({"max_seq_length": 32, "do_lower_case": False}),
    "config_sentence_transformers.json": _json(
        {"prompts": {"query": "q", "passage": "p"}, "default_prompt_name": None, "similarity_fn_name": "dot"}
    ),
}
# The forms of newer versions, and a Dense module.
_DENSE = {"in_features": 8, "out_features": 4, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
_KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
_NEWER = {
    "modules.json": _json(
        [
            {"idx": row, "path": f"{row}_{kind}" if row else "", "type": f"sentence_transformers.{kind}"}
            for row, kind in enumerate(_KINDS)
        ]
    ),
    "1_Pooling/config.json": _json({"embedding_dimension": 8, "pooling_mode": "lasttoken", "include_prompt": True}),
    "2_Dense/config.json": _json(_DENSE),
    "2_Dense/model.safetensors": b"dense",
    "3_Normalize/config.json": _json({"module_input_name": "sentence_embedding"}),
    "sentence_bert_config.json": _json(
        {
            "transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "query_length": 16,
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            "do_lower_case": True, "model_args": {"add_pooling_layer": False},
        }
    ),
    "tokenizer_config.json": _json({"model_max_length": 48}),
    "config_sentence_transformers.json": _json({"prompts": {"query": "q", "document": None}}),
}  # fmt: skip
_SHARDS = {"weight_map": {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"}, "metadata": {}}
LAYOUTS = (
    {**_PLAIN},
    {**_PLAIN, "mvindex.json": _json(SETTINGS)},
    {**_PLAIN, **_SENTENCE},
    {**_PLAIN, **_NEWER},
    {
        "config.json": _json(CONFIG | {"model_type": "roberta", "pad_token_id": 1}), "vocab.txt": b"a\nb\n",
        "model.safetensors.index.json": _json(_SHARDS), "model-1.safetensors": b"1", "model-2.safetensors": b"2",
    },
    {
        "mvindex.json": _json(SETTINGS | {"base": BASE, "family": "single", "max_views": 1}),
        "adapter_config.json": _json(ADAPTER), "adapter_model.safetensors": b"adapter",
    },
    {
        **_PLAIN, "mvindex.json": _json({"format_version": 1, "separate": True, "family": "poly"}),
        "query/config.json": _json(CONFIG), "query/model.safetensors": WEIGHTS, "views.safetensors": b"codes",
    },
)  # fmt: skip
