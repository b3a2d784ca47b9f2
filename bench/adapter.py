"""Choose how much of an adapter of multilingual-e5-small to keep, and measure it, in the light form of `e5-views`.

    python bench/adapter.py --adapter DIR --data DIR --scales 0 0.5 1 [--dev FILE,...] [--sets squad,cisi]
        [--states STATE,...]

DIR of --adapter has a LoRA, see docs/how-to/training.md; a scale of 0 is `e5-views` itself. Weights are the
base's and scale times what was learnt, rounded to int8 as those of `e5-views` are. --dev are files of examples, over
the passages that they name; --sets as in bench/quality.py. By views, by terms, and by both with each weight of --terms,
where views weigh 1.
--states are states of a run (OUT.run/state-*, of which a run keeps the last; copy others): DIR is made of their mean.
"""

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import harness
import numpy as np
import quality
from safetensors.numpy import load_file, save_file

from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.encoder.checkpoint.hub import E5
from mvindex.encoder.e5 import find_e5_form
from mvindex.encoder.onnx_encoder import OnnxEncoder
from mvindex.measure.questions import Question
from mvindex_train.data import read_examples
from mvindex_train.light.e5 import write_weights


def modes(weights):
    """Return the ways to search: by views, by terms, and by both with each of the weights of terms."""
    parts = {name: quality.VIEWS[name] for name in ("views", "bm25")}
    return parts | {f"both, {weight:g}": {"mode": "hybrid", "weights": (1.0, weight)} for weight in weights}


def adapted(adapter, scale, folder):
    """Return the encoder `e5-views` with scale times what the adapter learnt; its files are put into the folder."""
    write_weights(folder, adapter, scale)
    return OnnxEncoder(read_checkpoint(E5), replace(find_e5_form(), folder=folder), "cpu")


def write_mean(folder, states):
    """Write the mean of the states' weights as a LoRA in peft's format, in fp16."""
    weights = [load_file(f"{state}/weights.safetensors") for state in states]
    named = {name: re.sub(r"^documents\.(base_model\.model\.)?", "base_model.model.", name) for name in weights[0]}
    means = {
        own.replace(".default", ""): np.mean([each[name] for each in weights], axis=0).astype(np.float16)
        for name, own in named.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(means, folder / "adapter_model.safetensors")
    rank = min(next(iter(means.values())).shape)
    # mvindex train scales LoRA by 2.
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank}
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def dev_material(path):
    """Return the passages that the examples of the file name, and their questions."""
    examples = list(read_examples(str(path)))
    documents = {each.id: replace(each, metadata={}) for one in examples for each in one.documents}
    questions = [Question(one.question_id, one.question, passage_id=one.positives[0].id) for one in examples]
    return list(documents.values()), questions, None


def materials(options):
    for path in filter(None, options.dev.split(",")):
        yield Path(path).stem, dev_material(path)
    for name in filter(None, options.sets.split(",")):
        yield name, quality.loaded(options.data, name, options.sample)


def main():
    parser = harness.parser(
        __doc__,
        adapter=Path,
        data=Path,
        dev="",
        sets="",
        states="",
        sample=2500,
        scales=[0.0, 0.5, 1.0],
        terms=[1.0],
        json=False,
    )
    options = harness.parse(parser, adapter=harness.OUT, data=harness.DATA, sets="squad", sample=10, scales=[0.0])
    if options.states:
        write_mean(options.adapter, options.states.split(","))
    for name, material in materials(options):
        for scale in options.scales:
            with tempfile.TemporaryDirectory() as folder:
                encoder = adapted(options.adapter, scale, Path(folder))
                views, found = quality.measured(material, encoder, modes(options.terms))
            for mode, each in found.items():
                row = {"set": name, "scale": scale, "mode": mode, "questions": len(each.firsts), "views": views}
                row |= each.means() | {"error": quality.standard_error(np.array(each.firsts))}
                harness.show(row, options.json, shown)


def shown(row):
    figures = "  ".join(f"{name} {100 * row[name]:5.1f}" for name in row if "@" in name)
    head = f"{row['set']:10s} {row['questions']:6,} questions  scale {row['scale']:.2f}  {row['mode']:10s}"
    return f"{head}  {figures}  error {100 * row['error']:.1f}"


if __name__ == "__main__":
    main()
