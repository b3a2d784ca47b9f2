"""Light forms: int8 weights of packaged encoders, which ONNX Runtime runs for queries and documents, without torch.

A light form is a folder of the package, as onnx_cache.py describes one, with the base's configuration and tokenizer
beside it. form.json records what it was made of: sha256 of the base's and the adapter's weights. The encoder has the
fingerprint of its torch form: rankings agree, see docs/decisions/014-the-light-form.md. Made by
`python -m mvindex_train.light.build`; the place and the format fit any encoder that one graph of token ids and mask
computes. The form of `e5-views` is made on the user's machine, see e5.py.
"""

from __future__ import annotations

import json

from mvindex.encoder.checkpoint import Checkpoint
from mvindex.encoder.checkpoint.hub import E5, LIGHT_FORMS, packaged_folder
from mvindex.encoder.e5 import find_e5_form
from mvindex.encoder.onnx_cache import FORM, FORM_VERSION, OnnxForm, check_files
from mvindex.errors import CheckpointError


def find_light_form(checkpoint: Checkpoint) -> OnnxForm | None:
    """Return the light form of a packaged encoder, checked; None for any other encoder.

    Raises:
        CheckpointError: When a file is damaged or missing, or the form is of other weights.
        ExtraMissing, StoreError: Of `e5-views`, see find_e5_form().

    """
    if checkpoint.source == E5:
        return find_e5_form()
    if checkpoint.source not in LIGHT_FORMS or checkpoint.base is None:
        return None
    folder = packaged_folder(LIGHT_FORMS[checkpoint.source])
    try:
        content = json.loads((folder / FORM).read_bytes())
        if content["version"] != FORM_VERSION:
            raise ValueError(f"{FORM}: expected version {FORM_VERSION}, got {content['version']!r:.20}")
        made_of = (content["base"], content["adapter"])
        if made_of != (dict(checkpoint.base.weights), dict(checkpoint.weights)):
            raise ValueError(f"{FORM}: expected a form of the weights {checkpoint.weights}, got {made_of!r:.200}")
        check_files(folder, content["files"])
        return OnnxForm(
            folder=folder,
            width=int(content["width"]),
            pad_id=int(content["pad_id"]),
            has_head=False,
            difference=float(content["difference"]),
            is_packaged=True,
        )
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise CheckpointError(
            f"{folder}: the encoder {checkpoint.source!r} is damaged: {err}. Install mvindex again: "
            "pip install --force-reinstall --no-deps mvindex"
        ) from err
