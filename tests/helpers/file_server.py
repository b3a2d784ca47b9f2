"""An HTTP server of a folder, with ranges, in a thread: `with serve_folder(folder) as server`."""

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class FileServer:
    """A running server: its URL, and the bytes of content that it sent for each path."""

    url: str = ""
    sent: dict[str, int] = field(default_factory=dict)


@contextmanager
def serve_folder(folder):
    """Serve the files of a folder; /status/N/NAME answers with that status instead."""
    server, loop, ready = FileServer(), asyncio.new_event_loop(), threading.Event()

    async def count(request, response):
        if request.method == "GET" and response.content_length:
            server.sent[request.path] = server.sent.get(request.path, 0) + response.content_length

    async def answer_with_status(request):
        return web.Response(status=int(request.match_info["status"]), text="refused")

    async def run():
        app = web.Application()
        app.on_response_prepare.append(count)
        app.router.add_get("/status/{status}/{name}", answer_with_status)
        app.router.add_static("/", folder, show_index=True)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        ready.set()
        return runner

    def work():
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(run())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
