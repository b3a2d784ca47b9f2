"""A search service of your own: an index in the process of a FastAPI application, without a server beside it.

    pip install mvindex fastapi uvicorn
    uvicorn --app-dir examples fastapi_app:app
    curl "http://127.0.0.1:8000/search?q=when+did+the+oil+crisis+end"

A client that hangs up cancels its search. $CORPUS names the index; without one a small one is made.
"""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

import mvindex
from mvindex.errors import MvindexError, QueryError

TEXTS = {
    "oil": "The oil crisis began in October 1973. It ended in March 1974, when the embargo was lifted.",
    "plague": "The Black Death reached Crimea by 1343. It spread over Europe in five years.",
}


def made_index() -> str:
    """Return the directory of a small new index."""
    place = os.path.join(tempfile.mkdtemp(), "small.mvx")
    with mvindex.create(place, encoder="minilm-views") as index:
        index.add([mvindex.Document(name, text) for name, text in TEXTS.items()])
    return place


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the index once, for all requests."""
    async with await mvindex.open_async(os.environ.get("CORPUS") or made_index(), max_calls=4) as index:
        await index.warm_up()
        app.state.index = index
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(MvindexError)
async def refuse(request: Request, err: MvindexError) -> JSONResponse:
    """Answer with the message of an error; what a caller got wrong is 400."""
    return JSONResponse({"error": str(err)}, status_code=400 if isinstance(err, QueryError) else 500)


@app.get("/search")
async def search(request: Request, q: str, top_k: int = 5, offset: int = 0) -> dict[str, Any]:
    """Return the best documents of a query, each with the sentence that answers."""
    result = await request.app.state.index.search(q, top_k, offset=offset)
    hits = [{"id": hit.id, "score": hit.score, "cited": hit.citation and hit.citation.text} for hit in result]
    return {"exact": result.exact, "hits": hits}


@app.get("/documents/{doc_id}")
async def document(request: Request, doc_id: str) -> dict[str, Any]:
    """Return a document."""
    found = await request.app.state.index.get(doc_id)
    if found is None:
        raise HTTPException(404, f"there is no document {doc_id!r}")
    return {"id": found.id, "title": found.title, "text": found.text, "metadata": dict(found.metadata)}


@app.put("/documents/{doc_id}")
async def put(request: Request, doc_id: str, text: str) -> dict[str, int]:
    """Add a document, or replace it."""
    report = await request.app.state.index.add([mvindex.Document(doc_id, text)])
    return {"added": report.added, "replaced": report.replaced}
