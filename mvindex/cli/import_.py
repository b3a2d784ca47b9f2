"""The commands that move an index: `mvindex import`, `export`, `export-encoder` and `migrate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.flags import FieldFlags, expand_flags
from mvindex.cli.options import (
    CORPUS,
    NEW_INDEX,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    check_value,
    explain_wait,
    note,
    open_chosen_local,
    option,
    parse_choice,
    print_report,
    switch,
)
from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from mvindex.io.import_ import ImportReport, Target
    from mvindex.io.staging import Texts

# The heading of options in the help.
_COLUMNS = "Columns"

IndexArgument = Annotated[
    str,
    option(
        "Make this index: a directory, or an address such as milvus://HOST:PORT/NAME.",
        NEW_INDEX,
        "DIR",
        names=("--index", "-i"),
    ),
]
InnerProductOption = Annotated[
    bool, switch("--accept-inner-product", "Import an L2 index whose vectors are not of length 1.")
]
MemoryOption = Annotated[
    str | None,
    option(
        "Let the process that reads the file use so much memory, such as 16G (default: 2 GiB and four times the file).",
        metavar="BYTES",
        names=("--memory-limit",),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIndexFlags:
    """How vectors are stored, and queries are encoded."""

    encoder: Annotated[
        str | None,
        option("Encode text queries by this, which made the vectors: minilm, a directory or a hub id.", NEW_INDEX),
    ] = None
    dtype: Annotated[
        str | None, option("Store vectors in this type (default: that of the files).", NEW_INDEX, "fp16|fp32")
    ] = None
    lexical: Annotated[
        str | None,
        option(
            "Search these terms beside the vectors: unicode, english or bigrams (docs/how-to/hybrid.md).",
            NEW_INDEX,
            "TERMS",
        ),
    ] = None

    def target(self, index: str) -> Target:
        """Return the new index; ConfigError where it cannot be made, before the encoder is loaded."""
        from mvindex.encoder import load_encoder
        from mvindex.io.import_ import Target, check_target
        from mvindex.store.lexical.tokenizer import Lexical
        from mvindex.store.views import ViewType

        if self.dtype is not None:
            parse_choice("--dtype", self.dtype, ViewType)
        if self.lexical is not None:
            parse_choice("--lexical", self.lexical, Lexical)
        target = Target(path=index, dtype=self.dtype, lexical=self.lexical)
        check_target(target)
        return target if self.encoder is None else replace(target, encoder=load_encoder(self.encoder))


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFlags:
    """The texts of the vectors."""

    corpus: Annotated[
        list[str] | None,
        option("Take the texts from this file of tsv, jsonl or parquet; may be repeated.", CORPUS, "FILE"),
    ] = None
    corpus_format: Annotated[
        str | None, option("Read the corpus as dpr, msmarco, beir, jsonl or parquet (default: detected).", CORPUS)
    ] = None
    missing: Annotated[
        str,
        option(
            "Stop at a text without a vector or a vector without a text, or skip and count them.", CORPUS, "stop|skip"
        ),
    ] = "stop"

    def texts(self) -> Texts:
        """Return where the texts are; ConfigError for options of a corpus without one."""
        from mvindex.corpus import CorpusOptions, find_format
        from mvindex.io.staging import MissingPolicy, Texts

        chosen = parse_choice("--missing", self.missing, MissingPolicy)
        check_value("--corpus-format", self.corpus_format, find_format)
        if self.corpus is None and (chosen is MissingPolicy.SKIP or self.corpus_format is not None):
            raise ConfigError("--missing skip and --corpus-format need a corpus; give --corpus FILE")
        return Texts(files=self.corpus, options=CorpusOptions(format=self.corpus_format), missing=chosen)


import_app = typer.Typer(
    name="import",
    help="""Make an index from vectors computed elsewhere, or from an export (docs/how-to/moving.md).

    Example: mvindex import vectors corpus-parquet/ --index corpus.mvx

    Example: mvindex import faiss passages.faiss --ids ids.txt --index passages.mvx""",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@import_app.command()
@expand_flags
def dpr(  # noqa: PLR0913 - each option is a flag of the command
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="DPR's embeddings NAME_0, NAME_1, ...; or patterns.")
    ],
    index: IndexArgument,
    *,
    texts: CorpusFlags,
    id_prefix: Annotated[str, option("Remove this from the start of ids; '' removes nothing.")] = "wiki:",
    new: NewIndexFlags,
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

    given, target = texts.texts(), new.target(index)
    with show_step_progress() as on_progress:
        report = import_dpr(files, target, given, id_prefix=id_prefix, on_progress=on_progress)
    _print(report, output)


@import_app.command()
@expand_flags
def faiss(  # noqa: PLR0913 - each option is a flag of the command
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of faiss.write_index.")],
    index: IndexArgument,
    ids: Annotated[
        str | None,
        option("Take the id of each number that Faiss returns from this: lines, .npy or .json.", metavar="FILE"),
    ] = None,
    *,
    texts: CorpusFlags,
    accept_reconstructions: Annotated[
        bool, switch("--accept-reconstructions", "Import what the codes of a quantized index decode to.")
    ] = False,
    accept_inner_product: InnerProductOption = False,
    new: NewIndexFlags,
    memory_limit: MemoryOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Import the vectors of a Faiss index; several of one id are its views, in order.

    Example: mvindex import faiss passages.faiss --ids ids.txt --corpus passages.tsv --index passages.mvx
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.index.factory import find_importer

    options = {"accept_reconstructions": accept_reconstructions, "accept_inner_product": accept_inner_product}
    given, memory = texts.texts(), _memory(memory_limit)
    target = new.target(index)
    read = find_importer("faiss")
    with show_step_progress() as on_progress:
        report = read(file, target, given, ids=ids, memory_bytes=memory, on_progress=on_progress, **options)
    _print(report, output)


@import_app.command()
@expand_flags
def milvus(  # noqa: PLR0913 - each option is a flag of the command
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", help="Copy milvus://HOST:PORT/COLLECTION or milvus-lite:PATH.db?collection=NAME."
        ),
    ],
    index: IndexArgument,
    *,
    fields: FieldFlags,
    accept_inner_product: InnerProductOption = False,
    new: NewIndexFlags,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Import a collection that others made in Milvus: rows with a vector, a text and the id of their document.

    Rows of one id become a document with its views, each of which stands for the text of its row. Nothing is encoded.
    After a kill, the same command continues (docs/how-to/milvus.md).

    Example: mvindex import milvus 'milvus-lite:old.db?collection=chunks' --index corpus.mvx --id-field doc_id
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.index.factory import find_importer

    read = find_importer("milvus")
    target, named = new.target(index), asdict(fields)
    with show_step_progress() as on_progress:
        report = read(address, target, **named, accept_inner_product=accept_inner_product, on_progress=on_progress)
    _print(report, output)


@import_app.command("milvus-bulk")
def milvus_bulk(
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="What mvindex export --to milvus-bulk wrote.")],
    index: Annotated[
        str, option("Make this index, such as milvus://HOST:PORT/NAME.", metavar="ADDRESS", names=("--index", "-i"))
    ],
    remote: Annotated[
        str | None,
        option(
            "Let the server read the files here: a prefix in its bucket, or a directory (default: DIRECTORY, "
            "which only a server on this machine can read).",
            metavar="PLACE",
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
    from mvindex.index.factory import find_importer

    read = find_importer("milvus-bulk")
    with show_step_progress() as on_progress:
        report = read(directory, index, remote=remote, on_progress=on_progress)
    print_report("import", asdict(report), output)


@import_app.command()
@expand_flags
def vectors(  # noqa: PLR0913 - each option is a flag of the command
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="The directory of an export; or Parquet or JSON Lines files; or one .npy."),
    ],
    index: IndexArgument,
    ids: Annotated[
        str | None, option("Take the id of each vector of a .npy from this: lines, .npy or .json.", metavar="FILE")
    ] = None,
    *,
    texts: CorpusFlags,
    id_column: Annotated[
        str | None, option("Take ids from this column (default: doc_id, id, _id or document_id).", _COLUMNS, "NAME")
    ] = None,
    vector_column: Annotated[
        str | None,
        option("Take vectors from this column (default: vector, vectors, embedding or embeddings).", _COLUMNS, "NAME"),
    ] = None,
    text_column: Annotated[
        str | None, option("Take texts from this column (default: text, where there is one).", _COLUMNS, "NAME")
    ] = None,
    title_column: Annotated[
        str | None, option("Take titles from this column (default: title, where there is one).", _COLUMNS, "NAME")
    ] = None,
    new: NewIndexFlags,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Import documents with their vectors: an export of mvindex, or files of Parquet, JSON Lines or NumPy.

    Parquet has a row for each view, or for each document with a list of vectors; docs/how-to/moving.md names the
    columns. An export makes an index equal to its source.

    Example: mvindex import vectors corpus-parquet/ --index corpus.mvx

    Example: mvindex import vectors passages.parquet --index passages.mvx
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.import_ import import_vectors
    from mvindex.io.staging import Columns

    columns = Columns(id=id_column, vector=vector_column, text=text_column, title=title_column)
    given = None if texts == CorpusFlags() else texts.texts()
    with show_step_progress() as on_progress:
        report = import_vectors(
            files, new.target(index), columns=columns, ids=ids, texts=given, on_progress=on_progress
        )
    _print(report, output)


def _memory(text: str | None) -> int | None:
    from mvindex.measure.planning.units import parse_bytes

    return None if text is None else parse_bytes("--memory-limit", text)


def _print(report: ImportReport, output: Output) -> None:
    row = report.as_row()
    print_report("import", row, output)
    for name in ("without_vector", "without_text"):
        if row.get(name):
            note(f"{row[name]:,} left out: {name.replace('_', ' ')}")


def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Write to this directory: a new one, or that of an interrupted run.")
    ],
    to: Annotated[
        str,
        option(
            "Write parquet (one row per view), parquet-documents, npy, jsonl, trec (texts) or milvus-bulk.",
            names=("--to",),
        ),
    ],
    index: IndexOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Write an index to files of another format; after an interruption, the same command continues.

    All formats but trec have the vectors, and mvindex import makes an equal index from them.

    Example: mvindex export --to parquet corpus-parquet/ --index corpus.mvx
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.export import find_exporter

    check_value("--to", to, find_exporter)
    with open_chosen_local(index) as source, show_step_progress() as on_progress:
        row = asdict(find_exporter(to)(source, directory, on_progress))
    print_report("export", row, output)


def export_encoder(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="ENCODER", help="Export this encoder: minilm-views, minilm, a directory or a hub id."),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Write to this directory, which is new or empty.")],
    family: Annotated[
        str | None, option("Give single to export one vector per document of a checkpoint that makes several.")
    ] = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Save an encoder as a folder that sentence-transformers loads, with equal vectors (docs/how-to/checkpoints.md).

    An adapter is merged into full weights. Families that sentence-transformers has no modules for are refused.

    Example: mvindex export-encoder my-encoder my-encoder-st --family single
    """
    from mvindex.encoder.registry import leave_form, load_encoder
    from mvindex.encoder.sentence_transformers import save_sentence_transformer

    with explain_wait(f"loading and saving {checkpoint}"):
        exported = save_sentence_transformer(checkpoint, folder, family)
    row = asdict(exported)
    shown = row | {"licence": row["licence"] or "unknown"}
    print_report("export-encoder", shown if output is Output.TABLE else row, output)
    leave_form(load_encoder(exported.folder, family=exported.family, device="cpu"), note)


_QUERIES = 200


def migrate(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The index to copy: a directory or an address.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A new directory or address, or that of an interrupted run.")
    ],
    verify: Annotated[
        bool, switch("--verify", f"Search both with {_QUERIES} queries at the end; exit 1 if a result differs.")
    ] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Copy an index between a directory and Milvus, either way, without encoding; results stay the same.

    The source is only read. After an interruption, the same command continues.

    Example: mvindex migrate corpus.mvx milvus://localhost:19530/corpus --verify
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.migrate import migrate as move

    with show_step_progress() as on_progress:
        row = asdict(move(source, target, queries=_QUERIES if verify else 0, on_progress=on_progress))
    print_report("migrate", row, output)
