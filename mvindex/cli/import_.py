"""The commands `mvindex import dpr`, `faiss`, `milvus-bulk` and `vectors`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.options import check_value, note, parse_choice
from mvindex.cli.output import JsonOption, Output, OutputOption, print_report
from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from mvindex.io.import_ import ImportReport, Target
    from mvindex.io.join import Texts

IndexArgument = Annotated[
    str,
    typer.Option("--index", "-i", help="The new index: a directory, or an address such as milvus://HOST:PORT/NAME."),
]
CorpusOption = Annotated[
    list[str] | None, typer.Option("--corpus", help="Files of the texts: tsv, jsonl, parquet; repeatable.")
]
CorpusFormatOption = Annotated[
    str | None, typer.Option(help="Format of the corpus: dpr, msmarco, beir, jsonl or parquet; detected by default.")
]
MissingOption = Annotated[
    str, typer.Option(help="A text without a vector, or a vector without a text: stop, or skip (and count them).")
]
EncoderOption = Annotated[
    str | None, typer.Option(help="Encoder that made the vectors, for text queries: minilm, a directory, a hub id.")
]
DtypeOption = Annotated[str | None, typer.Option(help="Stored type, fp16 or fp32; by default that of the files.")]
LexicalOption = Annotated[
    str | None, typer.Option(help="Enable lexical search with the terms unicode, english or bigrams.")
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="BYTES",
        help="Memory of the process that reads the file, such as 16G; by default 2 GiB and four times the file.",
    ),
]

import_app = typer.Typer(
    name="import",
    help="""Make an index from vectors computed elsewhere, or from an export (docs/how-to/moving.md).

    Example: mvindex import vectors corpus-parquet/ --index corpus.mvx""",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@import_app.command()
def dpr(  # noqa: PLR0913 - each option is a flag of the command
    files: Annotated[list[str], typer.Argument(help="DPR's embeddings NAME_0, NAME_1, ...; or patterns.")],
    index: IndexArgument,
    corpus: CorpusOption = None,
    corpus_format: CorpusFormatOption = None,
    missing: MissingOption = "stop",
    id_prefix: Annotated[str, typer.Option(help="Prefix removed from ids; '' for none.")] = "wiki:",
    encoder: EncoderOption = None,
    dtype: DtypeOption = None,
    lexical: LexicalOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Import the embeddings that DPR's generate_dense_embeddings.py pickles; run nothing in them.

    A file that names anything but the parts of a NumPy array is refused. Without --corpus the documents have ids and
    no texts.

    Example: mvindex import dpr embeddings/wiki_* --corpus psgs_w100.tsv --index wiki.mvx
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.dpr import import_dpr

    texts = _texts(corpus, missing, corpus_format)
    target = _target(index, encoder, dtype, lexical)
    with show_step_progress() as on_progress:
        report = import_dpr(files, target, texts, id_prefix=id_prefix, on_progress=on_progress)
    _print(report, output)


@import_app.command()
def faiss(  # noqa: PLR0913 - each option is a flag of the command
    file: Annotated[str, typer.Argument(help="File written by faiss.write_index.")],
    index: IndexArgument,
    ids: Annotated[
        str | None,
        typer.Option(help="The id of each number that Faiss returns: a line each, or .npy, or .json."),
    ] = None,
    corpus: CorpusOption = None,
    corpus_format: CorpusFormatOption = None,
    missing: MissingOption = "stop",
    accept_reconstructions: Annotated[
        bool, typer.Option("--accept-reconstructions", help="Import what the codes of a quantised index decode to.")
    ] = False,
    accept_inner_product: Annotated[
        bool,
        typer.Option("--accept-inner-product", help="Import an L2 index whose vectors are not of length 1."),
    ] = False,
    encoder: EncoderOption = None,
    dtype: DtypeOption = None,
    lexical: LexicalOption = None,
    memory_limit: MemoryOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Import the vectors of a Faiss index; several of one id are its views, in order.

    Example: mvindex import faiss passages.faiss --ids ids.txt --corpus passages.tsv --index passages.mvx
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.index.backends import find_importer

    options = {"accept_reconstructions": accept_reconstructions, "accept_inner_product": accept_inner_product}
    texts, memory = _texts(corpus, missing, corpus_format), _memory(memory_limit)
    target = _target(index, encoder, dtype, lexical)
    read = find_importer("faiss")
    with show_step_progress() as on_progress:
        report = read(file, target, texts, ids=ids, memory_bytes=memory, on_progress=on_progress, **options)
    _print(report, output)


@import_app.command("milvus-bulk")
def milvus_bulk(
    directory: Annotated[str, typer.Argument(help="Directory of `mvindex export --to milvus-bulk`.")],
    index: Annotated[str, typer.Option("--index", "-i", help="The new index, such as milvus://HOST:PORT/NAME.")],
    remote: Annotated[
        str | None,
        typer.Option(
            help="Where the server reads the files: a prefix in its bucket, or a directory. By default DIRECTORY, "
            "which only a server on this machine can read."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Import an export's files into a Milvus server, which reads them itself; every file and collection is counted.

    After a kill of this command or of the server, the same command continues.

    Example: mvindex import milvus-bulk bulk/ --index milvus://localhost:19530/corpus
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.index.backends import find_importer

    read = find_importer("milvus-bulk")
    with show_step_progress() as on_progress:
        report = read(directory, index, remote=remote, on_progress=on_progress)
    print_report("import", asdict(report), output)


@import_app.command()
def vectors(  # noqa: PLR0913 - each option is a flag of the command
    files: Annotated[
        list[str], typer.Argument(help="The directory of an export; or Parquet or JSON Lines files; or one .npy.")
    ],
    index: IndexArgument,
    ids: Annotated[
        str | None, typer.Option(help="For .npy: the id of each vector, a line each, or .npy, or .json.")
    ] = None,
    corpus: CorpusOption = None,
    corpus_format: CorpusFormatOption = None,
    missing: MissingOption = "stop",
    id_column: Annotated[str | None, typer.Option(help="By default doc_id, id, _id or document_id.")] = None,
    vector_column: Annotated[
        str | None, typer.Option(help="By default vector, vectors, embedding or embeddings.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="By default text, where the file has it.")] = None,
    title_column: Annotated[str | None, typer.Option(help="By default title, where the file has it.")] = None,
    encoder: EncoderOption = None,
    dtype: DtypeOption = None,
    lexical: LexicalOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Import documents with their vectors: an export of mvindex, or files of Parquet, JSON Lines or NumPy.

    Parquet has a row for each view, or for each document with a list of vectors (docs/how-to/moving.md
    names the columns).
    An export makes an index equal to its source.

    Example: mvindex import vectors passages.parquet --index passages.mvx
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.files import import_vectors
    from mvindex.io.validation import Columns

    columns = Columns(id=id_column, vector=vector_column, text=text_column, title=title_column)
    texts = None if (corpus, missing, corpus_format) == (None, "stop", None) else _texts(corpus, missing, corpus_format)
    with show_step_progress() as on_progress:
        target = _target(index, encoder, dtype, lexical)
        report = import_vectors(files, target, columns=columns, ids=ids, texts=texts, on_progress=on_progress)
    _print(report, output)


def _target(index: str, encoder: str | None, dtype: str | None, lexical: str | None) -> Target:
    from mvindex.encoder import load_encoder
    from mvindex.io.import_ import Target, check_target
    from mvindex.lexical.tokenizer import Lexical
    from mvindex.store.views import ViewType

    if dtype is not None:
        parse_choice("--dtype", dtype, ViewType)
    if lexical is not None:
        parse_choice("--lexical", lexical, Lexical)
    target = Target(path=index, dtype=dtype, lexical=lexical)
    check_target(target)  # before an encoder is loaded
    loaded = None if encoder is None else load_encoder(encoder)
    return Target(path=index, encoder=loaded, dtype=dtype, lexical=lexical)


def _texts(corpus: list[str] | None, missing: str, corpus_format: str | None) -> Texts:
    from mvindex.corpus import CorpusOptions, find_format
    from mvindex.io.join import Texts
    from mvindex.io.validation import MissingPolicy

    chosen = parse_choice("--missing", missing, MissingPolicy)
    check_value("--corpus-format", corpus_format, find_format)
    if corpus is None and (chosen is MissingPolicy.SKIP or corpus_format is not None):
        raise ConfigError("--missing skip and --corpus-format need a corpus; give --corpus FILE")
    return Texts(files=corpus, options=CorpusOptions(format=corpus_format), missing=chosen)


def _memory(text: str | None) -> int | None:
    from mvindex.planning.units import parse_bytes

    return None if text is None else parse_bytes("--memory-limit", text)


def _print(report: ImportReport, output: Output) -> None:

    row = report.as_row()
    print_report("import", row, output)
    for name in ("without_vector", "without_text"):
        if row.get(name):
            note(f"{row[name]:,} left out: {name.replace('_', ' ')}")
