"""Open encoders by name, or from the spec that an index stores."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, cast

from mvindex.corpus.text.parts import Splitter, parse_splitter
from mvindex.encoder.checkpoint import parse_family, read_checkpoint
from mvindex.encoder.checkpoint.families import AUTO_VIEWS, SENTENCES, SNIPPETS
from mvindex.encoder.checkpoint.hub import DEFAULT, E5, LIGHT_FORMS
from mvindex.encoder.checkpoint.load import check_can_load, check_has_torch_form
from mvindex.encoder.checkpoint_encoder import CheckpointEncoder
from mvindex.encoder.devices import DevicesEncoder, names_several, parse_devices
from mvindex.encoder.embedding import openai
from mvindex.encoder.embedding.encoder import Embedder, EmbeddingEncoder, FunctionEmbedder, ViewPlan, makes_views
from mvindex.encoder.embedding.sentence_transformer import KIND as SENTENCE_TRANSFORMER
from mvindex.encoder.embedding.sentence_transformer import (
    SentenceTransformerEmbedder,
    is_sentence_transformer,
    open_sentence_transformer,
)
from mvindex.encoder.function import CallableEncoder, Encoder
from mvindex.encoder.light import find_light_form
from mvindex.encoder.onnx_cache import FormState, OnnxForm, Refused, find_form, form_folder
from mvindex.encoder.onnx_encoder import OnnxEncoder
from mvindex.errors import CheckpointError, ConfigError, ExtraMissing, MvindexError

logger = logging.getLogger(__name__)

# An Encoder, or what load_encoder() takes.
EncoderLike: TypeAlias = "Encoder | Callable[..., Any] | str | os.PathLike[str] | Any"

_MAKING = "making the ONNX form of the encoder, once: later queries then start without torch"
_LIGHT = "ONNX Runtime, int8 (packaged)"
_KEEPS_TORCH = "queries go on loading torch"


def load_encoder(  # noqa: PLR0913 - each argument is a setting of the encoder
    source: EncoderLike = DEFAULT,
    *,
    family: str | None = None,
    max_views: int | Literal["auto"] | None = None,
    splitter: str | None = None,
    device: str | None = None,
    name: str | None = None,
    query_function: Callable[[list[str]], Any] | None = None,
) -> Encoder:
    """Return the encoder of a checkpoint, a SentenceTransformer, a function, or an embeddings endpoint.

    Args:
        source: "minilm-views" (default), "e5-views" or "minilm" (packaged), a directory, or a hub id, `org/name` or
            `org/name@revision`; "openai:URL#model" for an OpenAI-compatible endpoint; a SentenceTransformer object; or
            a function that returns an (n, d) array for a list of n texts.
        family: Of a checkpoint: "snippets", "single", "first-k", "kmeans", "sentences" or "splits" fit any weights,
            "poly", "viewers" and "context-viewers" only those trained so. Of anything else: "snippets", each of which
            is embedded as a text of its own, or "single". The checkpoint's own by default, else "snippets".
        max_views: The most views a document gets, 8 by default; "auto" is one view a part of the text, up to 256, of
            the families snippets and sentences.
        splitter: "parts-1" (sentences, items of lists, lines, clauses), "sentences-1" (English) or "sentences-2" (ten
            languages); by default the checkpoint's or the family's, parts for snippets.
        device: "cpu", "cuda", "cuda:N" for a checkpoint, or several between commas, each of which encodes documents in
            a process of its own; by default CUDA where there is one.
        name: Of a function, what an index records; its module and qualified name by default.
        query_function: Of a function, what embeds queries where they are embedded otherwise.

    Raises:
        ConfigError: For an invalid value, or ExtraMissing, with the packages to install.
        CheckpointError: When a checkpoint is wrong.

    """
    most = AUTO_VIEWS if max_views == "auto" else max_views
    cut = None if splitter is None else parse_splitter(splitter)
    if not callable(source) and (name is not None or query_function is not None):
        raise ConfigError("name and query_function: expected a function as the encoder, which they belong to")
    if (embedder := _embedder_of(source, name, query_function)) is not None:
        chosen: dict[str, Any] = {"family": family, "max_views": most, "splitter": cut}
        return EmbeddingEncoder(
            embedder, ViewPlan(**{key: value for key, value in chosen.items() if value is not None})
        )
    if device is not None and names_several(device):
        chosen = {"family": family, "max_views": max_views, "splitter": splitter}
        on_cpu = cast(CheckpointEncoder, load_encoder(source, **chosen, device="cpu"))
        check_has_torch_form(on_cpu.checkpoint)
        return DevicesEncoder(on_cpu, parse_devices(device))
    checkpoint = read_checkpoint(cast(str, source), None if family is None else parse_family(family), most, cut)
    if max_views == "auto" and checkpoint.settings.family not in (SNIPPETS, SENTENCES):
        raise ConfigError(
            f"max_views: expected a number for the family {checkpoint.settings.family.name!r}, got 'auto', which is "
            "for views that each stand for a part of the text (snippets, sentences)"
        )
    form = find_light_form(checkpoint) or find_form(checkpoint.fingerprint)
    if isinstance(form, OnnxForm) and device in (None, "cpu"):
        return OnnxEncoder(checkpoint, form, device)
    try:
        check_can_load(checkpoint)
    except ExtraMissing as err:
        raise ExtraMissing(
            f"{err}; for queries alone, copy the ONNX form from a machine that has it, to "
            f"{form_folder(checkpoint.fingerprint)}"
        ) from None
    # Imported late: the encoder needs torch only from here on.
    from mvindex.encoder.transformer import TransformerEncoder

    return TransformerEncoder(checkpoint, device)


def as_encoder(
    encoder: EncoderLike, family: str | None = None, max_views: int | Literal["auto"] | None = None
) -> Encoder:
    """Return the encoder that was given or named; ConfigError for what is none.

    A function that gives several vectors of a text makes its own views, see CallableEncoder.
    """
    if hasattr(encoder, "encode_documents"):
        if family is not None or max_views is not None:
            raise ConfigError("family and max_views: an Encoder makes its own views; give them to load_encoder()")
        return cast(Encoder, encoder)
    is_function = callable(encoder) and not is_sentence_transformer(encoder)
    if is_function and family is None and max_views is None and makes_views(cast(Callable[..., Any], encoder)):
        return CallableEncoder(cast(Callable[..., Any], encoder))
    return load_encoder(encoder, family=family, max_views=max_views)


def _embedder_of(source: Any, name: str | None, query_function: Callable[[list[str]], Any] | None) -> Embedder | None:
    """Return a model of one vector a text; None for the name of a checkpoint."""
    if isinstance(source, str) and source.startswith(openai.PREFIX):
        return openai.OpenAIEmbedder(source)
    if isinstance(source, str | os.PathLike):
        return None
    if is_sentence_transformer(source):
        if name is not None or query_function is not None:
            raise ConfigError("name and query_function: a SentenceTransformer brings its own")
        return SentenceTransformerEmbedder(source)
    if callable(source):
        return FunctionEmbedder(source, query_function, name)
    raise ConfigError(
        "encoder: expected a name, a path, openai:URL#model, a SentenceTransformer, a function or an Encoder, "
        f"got {type(source).__name__}"
    )


def leave_form(encoder: Encoder | None, on_note: Callable[[str], None]) -> None:
    """Make the ONNX form of the encoder's queries where it lacks one, for whatever makes or first uses an encoder.

    What fails becomes a note: queries then go on loading torch. A refusal is kept in the cache, so that it is noted
    once; see prepare_queries(). None is an encoder that was never loaded.
    """
    if encoder is None:
        return
    try:
        logger.info("queries are encoded by %s", prepare_queries(encoder, on_note))
    except MvindexError as err:
        on_note(f"{_KEEPS_TORCH}: {err}")


def prepare_queries(encoder: Encoder, on_note: Callable[[str], None] = lambda text: None) -> str:
    """Make the ONNX form of the encoder's queries where there is none yet, and return how queries are encoded.

    The form lies in the user's cache: load_encoder() then answers queries without loading torch. Makes nothing for
    encoders of other kinds, and those whose form was refused before. on_note is called with a line before it takes
    seconds, and with the reason if the form is refused.

    Raises:
        ExtraMissing: When a package that makes the form is not installed.
        StoreError: When the cache cannot be written.

    """
    if isinstance(encoder, OnnxEncoder):
        return _description(encoder.form)
    if encoder.spec.get("kind") != "checkpoint":
        return describe_queries(encoder.spec)
    from mvindex.encoder.transformer import TransformerEncoder

    if not isinstance(encoder, TransformerEncoder):
        return describe_queries(encoder.spec)
    from mvindex.encoder.onnx_export import make_form, needs_form

    state = find_form(encoder.fingerprint)
    if needs_form(state):
        on_note(_MAKING)
        state = make_form(encoder)
        if isinstance(state, Refused):
            on_note(f"{_KEEPS_TORCH}: {state.reason}")
    return _description(state)


def describe_queries(spec: Mapping[str, Any]) -> str:
    """Return how the queries of an encoder of this spec are encoded on this machine, for people."""
    if spec.get("kind") != "checkpoint":
        return str(spec.get("kind"))
    if spec.get("source") in (*LIGHT_FORMS, E5):
        return _LIGHT
    return _description(find_form(str(spec["fingerprint"])))


def _description(state: FormState) -> str:
    if isinstance(state, OnnxForm) and state.is_packaged:
        return _LIGHT
    if isinstance(state, OnnxForm):
        return f"ONNX Runtime, {state.difference:.1g} from torch ({state.folder})"
    return "torch" if state is None else f"torch; no ONNX form: {state.reason}"


def encoder_from_spec(spec: Mapping[str, Any], device: str | None = None) -> Encoder:
    """Open the encoder that an index was made with, on the device.

    Raises:
        ConfigError: For a function, which must be given again, and for a model that is another one now.
        CheckpointError: When a checkpoint now gives other vectors.

    """
    kind, source = spec.get("kind"), spec.get("source")
    if kind in ("callable", "function"):
        raise ConfigError(
            f"this index was made with the function {spec.get('name') or source!r}, which only your program has; "
            "give it: mvindex.open(path, encoder=function)"
        )
    if kind == openai.KIND:
        return _same(EmbeddingEncoder(openai.OpenAIEmbedder(str(source)), plan_of(spec), spec), spec, ConfigError)
    if kind == SENTENCE_TRANSFORMER:
        opened = open_sentence_transformer(str(source), device)
        return _same(EmbeddingEncoder(opened, plan_of(spec), spec), spec, ConfigError)
    if kind != "checkpoint":
        raise ConfigError(f"this index was made with an encoder of kind {kind!r}; expected checkpoint")
    encoder = load_encoder(
        source,
        family=spec["family"],
        max_views=spec["max_views"],
        splitter=splitter_of(spec),
        device=device,
    )
    return _same(encoder, spec, CheckpointError)


def _same(encoder: Encoder, spec: Mapping[str, Any], error: type[MvindexError]) -> Encoder:
    """Return the encoder; raise the error unless its fingerprint is the recorded one."""
    if encoder.fingerprint != spec["fingerprint"]:
        raise error(
            f"encoder {spec['source']!r}: has changed since the index was made: fingerprint {encoder.fingerprint}, "
            f"expected {spec['fingerprint']}. Bring back the old one, or ingest again with this one"
        )
    return encoder


def plan_of(spec: Mapping[str, Any]) -> ViewPlan:
    """Return how an index of a model of one vector a text makes views."""
    return ViewPlan(family=spec["family"], max_views=spec["max_views"], splitter=parse_splitter(spec["splitter"]))


def encoder_given_again(source: EncoderLike, spec: Mapping[str, Any] | None) -> Encoder:
    """Return the encoder that a caller gives for an index of this spec: it makes views as the index records it."""
    if hasattr(source, "encode_documents"):
        return cast(Encoder, source)
    kind = (spec or {}).get("kind")
    if kind == "callable" and callable(source):
        return CallableEncoder(source)
    if spec is None or kind == "callable":
        return load_encoder(source)
    if isinstance(source, str | os.PathLike) and not str(source).startswith(openai.PREFIX):
        return load_encoder(source, splitter=splitter_of(spec))
    if "family" not in spec or kind == "checkpoint":
        return load_encoder(source)
    return load_encoder(source, family=spec["family"], max_views=spec["max_views"], splitter=spec["splitter"])


def splitter_of(spec: Mapping[str, Any]) -> str:
    """Return the splitter that an index's encoder cut texts with; one that records none is of the first."""
    return str(spec.get("splitter", Splitter.SENTENCES.value))
