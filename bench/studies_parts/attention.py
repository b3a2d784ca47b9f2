"""How much viewers differ in what they read: KL of their attention in the last layer (CAMVR eq. 14)."""

import copy

import numpy as np
import torch

from mvindex.checkpoint import load_parts, load_tokenizer, read_checkpoint, viewer_ids
from mvindex.encoder.batches import BatchShape, batches
from mvindex.encoder.inputs import Inputs

# An attention that underflows to 0 would make the logarithm infinite.
SMALLEST = 1e-12


def attention_kl(folder, documents):
    """Least, mean and greatest KL(i, j) over pairs of viewers, each averaged over the documents of one window.

    The heads are averaged first, which CAMVR leaves open. None where viewers read different tokens by design
    (own_snippet): the KL is infinite there; and where there is one viewer.
    """
    checkpoint = read_checkpoint(folder)
    if checkpoint.settings.own_snippet or checkpoint.settings.max_views == 1:
        return None
    tokenizer = load_tokenizer(checkpoint)
    model = copy.copy(load_parts(checkpoint, tokenizer).documents)
    model.set_attn_implementation("eager")
    viewers = np.array(viewer_ids(tokenizer)[1 : checkpoint.settings.max_views + 1])
    arranged = Inputs(checkpoint.settings, tokenizer, str(folder)).arrange_documents(documents)
    windows = [one.windows[0] for one in arranged if len(one.windows) == 1]
    found = []
    for batch in batches(windows, np.zeros(len(windows), np.int64), BatchShape(max_tokens=4096), 0):
        attention = _last_attention(model, batch)
        for line, own in enumerate(attention):
            size = int(batch.mask[line].sum())
            places = [int(np.flatnonzero(batch.ids[line] == viewer)[0]) for viewer in viewers]
            found.append(pairwise_kl(own[places][:, :size]))
    mean = np.mean(found, axis=0)[~np.eye(len(viewers), dtype=bool)]
    figures = {"least": mean.min(), "mean": mean.mean(), "greatest": mean.max()}
    return {name: round(float(value), 4) for name, value in figures.items()}


def pairwise_kl(attention):
    """(k, k): KL(i, j) = sum_l a_jl log(a_jl / a_il) of the rows of attention, (k, t) (CAMVR eq. 14)."""
    logs = np.log(np.maximum(attention, SMALLEST))
    return (attention[None, :] * (logs[None, :] - logs[:, None])).sum(axis=2)


def _last_attention(model, batch):
    """(b, t, t) float64: the mean over the heads of the last layer's attention."""
    inputs = {"input_ids": torch.from_numpy(batch.ids), "attention_mask": torch.from_numpy(batch.mask)}
    if batch.positions is not None:
        inputs["position_ids"] = torch.from_numpy(batch.positions)
    with torch.inference_mode():
        attentions = model(**inputs, output_attentions=True).attentions
    return attentions[-1].mean(dim=1).double().numpy()
