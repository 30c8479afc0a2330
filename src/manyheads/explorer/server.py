"""The explorer served on this machine alone: the page, and a process for each question to the library.

The server computes nothing and does not load JAX. A question ends with the tab that asked it.
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
BEAT = 0.5  # seconds between signs of life; a tab that is gone is noticed then
LONGEST_LINE = 2**28
HERE = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


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
            return PlainTextResponse(f"there is no question {kind!r}; there are {', '.join(QUESTIONS)}.", 404)
        body, sent = bytearray(), 0
        async for chunk in request.stream():  # read to the end even if too long: else the page would not hear why
            sent += len(chunk)
            if sent <= MOST_BYTES:
                body += chunk
        if sent > MOST_BYTES:
            return PlainTextResponse(f"more than {MOST_BYTES // 10**6} MB were sent; send less.", 413)
        extra = [request.query_params.get("name", "file")[:200]] if kind == "upload" else []
        lines = _answer([kind, *extra], bytes(body), request, turn)
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=HEADERS)

    return Starlette(routes=[Route("/", page), Route("/api/{kind}", question, methods=["POST"])])


def _refusal(request: Request) -> Response | None:
    """Only pages of this server may ask: no other name for this machine, no other site."""
    host = request.headers.get("host", "").rsplit(":", 1)[0]
    if host not in HERE:
        return PlainTextResponse("this server answers 127.0.0.1 and localhost only.", 403)
    if request.method == "POST" and request.headers.get("x-manyheads") != "explorer":
        return PlainTextResponse("only the explorer's own page may ask.", 403)
    return None


async def _answer(arguments: list[str], body: bytes, request: Request, turn: asyncio.Semaphore) -> AsyncIterator[bytes]:
    """What the process says, line by line; it is killed when the tab is gone."""
    while turn.locked():
        yield _line(progress="waiting for other questions")
        await asyncio.sleep(BEAT)
        if await request.is_disconnected():
            return
    async with turn:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "manyheads.explorer.work", *arguments, limit=LONGEST_LINE,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
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
                yield _line(error="the library's process ended without an answer; there may be too little memory.")
        finally:
            if process.returncode is None:
                process.kill()
            process.stdin.close()
            await asyncio.shield(process.wait())


def _line(**values) -> bytes:
    return json.dumps(values).encode() + b"\n"


def serve(port: int = 0, started: Callable[[str], None] = print) -> None:
    """Serve until Ctrl-C. Port 0 takes a free one; `started` is told the address."""
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
        config = uvicorn.Config(application(), log_level="warning", timeout_graceful_shutdown=1, lifespan="off")
        started(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listening])
