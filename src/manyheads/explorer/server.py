"""Serves the explorer on this machine only: the page, and one process for each question to the library.

The server computes nothing and does not load JAX. Closing a tab ends its questions.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from manyheads.explorer.page import render

QUESTIONS = ("certify", "good-start", "margins", "draw", "upload")
MOST_BYTES = 64 * 10**6  # of a question
AT_ONCE = 4  # questions answered at a time
BEAT = 0.5  # seconds between heartbeats, at which a closed tab is noticed
LONGEST_LINE = 2**28
HERE = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def application() -> Starlette:
    """The page at /, questions at /api/KIND."""
    text = render().replace('data-served="no"', 'data-served="yes"', 1)
    turn = asyncio.Semaphore(AT_ONCE)

    async def page(request: Request) -> Response:
        return _refusal(request) or HTMLResponse(text, headers=HEADERS)

    async def question(request: Request) -> Response:
        kind = request.path_params["kind"]
        if refused := _refusal(request):
            return refused
        if kind not in QUESTIONS:
            return PlainTextResponse(
                f"unknown question {kind!r}; ask one of {', '.join(QUESTIONS)}.", 404
            )
        body, sent = bytearray(), 0
        async for (
            chunk
        ) in request.stream():  # read to the end even if too long, or the page gets no reply
            sent += len(chunk)
            if sent <= MOST_BYTES:
                body += chunk
        if sent > MOST_BYTES:
            return PlainTextResponse(
                f"the request exceeds {MOST_BYTES // 10**6} MB; send less.", 413
            )
        extra = [request.query_params.get("name", "file")[:200]] if kind == "upload" else []
        lines = _answer([kind, *extra], bytes(body), request, turn)
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=HEADERS)

    return Starlette(routes=[Route("/", page), Route("/api/{kind}", question, methods=["POST"])])


def _refusal(request: Request) -> Response | None:
    """Refuse requests under another host name or from another site's pages."""
    host = request.headers.get("host", "").rsplit(":", 1)[0]
    if host not in HERE:
        return PlainTextResponse("this server answers 127.0.0.1 and localhost only.", 403)
    if request.method == "POST" and request.headers.get("x-manyheads") != "explorer":
        return PlainTextResponse("only the explorer's own page may send requests.", 403)
    return None


async def _answer(
    arguments: list[str], body: bytes, request: Request, turn: asyncio.Semaphore
) -> AsyncIterator[bytes]:
    """The output of the process, line by line; the process is killed when the tab is closed."""
    while turn.locked():
        yield _line(progress="waiting for other questions")
        await asyncio.sleep(BEAT)
        if await request.is_disconnected():
            return
    async with turn:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "manyheads.explorer.work",
            *arguments,
            limit=LONGEST_LINE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdin is not None and process.stdout is not None
        answered = False
        try:
            process.stdin.write(len(body).to_bytes(8, "big") + body)
            while not await request.is_disconnected():
                try:
                    said = await asyncio.wait_for(process.stdout.readline(), BEAT)
                except TimeoutError:
                    yield _line(alive=True)
                    continue
                if not said:
                    break
                answered = answered or not said.startswith(b'{"progress"')
                yield said
            if not answered:
                yield _line(
                    error="the library's process ended without an answer; there may be too little memory."
                )
        finally:
            if process.returncode is None:
                process.kill()
            process.stdin.close()
            await asyncio.shield(process.wait())


def _line(**values) -> bytes:
    return json.dumps(values).encode() + b"\n"


def serve(port: int = 0, started: Callable[[str], None] = print) -> None:
    """Serve until Ctrl-C. Port 0 picks a free one; `started` is called with the address."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(
                f"port {port} of 127.0.0.1 cannot be used ({error.strerror}); leave --port out for a free one."
            ) from None
        listening.listen()
        config = uvicorn.Config(
            application(), log_level="warning", timeout_graceful_shutdown=1, lifespan="off"
        )
        started(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listening])
