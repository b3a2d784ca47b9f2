"""Divergence of the viewers' attention in the last layer (CAMVR eq. 14)."""

import copy

import numpy as np
import torch

from mvindex.encoder.arranged import Inputs
from mvindex.encoder.batches import BatchShape, batches
from mvindex.encoder.checkpoint import load_parts, load_tokenizer, read_checkpoint, viewer_ids
from mvindex.measure.analysis.measures import divergences


def attention_kl(folder, documents):
    """Return minimum, mean and maximum of KL(i, j) over pairs of viewers, averaged over the documents of one window.

    All viewers count, those of empty snippets too, which give no view and which `mvindex analyze` leaves out. The heads
    are averaged first, which CAMVR leaves open. None where viewers read different tokens by design
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
    found = []
    for batch in batches(arranged.take(np.flatnonzero(arranged.num_windows == 1)), BatchShape(max_tokens=4096), 0):
        attention = _last_attention(model, batch)
        for line, own in enumerate(attention):
            size = int(batch.mask[line].sum())
            places = [int(np.flatnonzero(batch.ids[line] == viewer)[0]) for viewer in viewers]
            found.append(divergences(own[places][:, :size]))
    mean = np.mean(found, axis=0)[~np.eye(len(viewers), dtype=bool)]
    figures = {"least": mean.min(), "mean": mean.mean(), "greatest": mean.max()}
    return {name: round(float(value), 4) for name, value in figures.items()}


def _last_attention(model, batch):
    """Return the mean over the heads of the last layer's attention, (b, t, t) float64."""
    inputs = {"input_ids": torch.from_numpy(batch.ids), "attention_mask": torch.from_numpy(batch.mask)}
    if batch.positions is not None:
        inputs["position_ids"] = torch.from_numpy(batch.positions)
    with torch.inference_mode():
        attentions = model(**inputs, output_attentions=True).attentions
    return attentions[-1].mean(dim=1).double().numpy()
