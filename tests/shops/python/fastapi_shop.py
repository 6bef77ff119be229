"""A shop on FastAPI, for uvicorn."""

from urllib.parse import parse_qs

from fastapi import FastAPI, Header, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response, StreamingResponse

from common import FILE, Spec, echo, sell

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"]


class MethodOverride:
    """Takes the method from a header, the query or a form, before FastAPI routes."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = dict(scope["headers"])
        asked = headers.get(b"x-http-method-override", b"").decode("utf-8", "replace")
        asked = asked or parse_qs(scope["query_string"].decode("latin-1")).get("_method", [""])[0]
        if not asked and b"urlencoded" in headers.get(b"content-type", b""):
            body = await Request(scope, receive).body()
            asked = parse_qs(body.decode("latin-1")).get("_method", [""])[0]

            async def again():
                return {"type": "http.request", "body": body, "more_body": False}

            receive = again
        if asked:
            scope["method"] = asked.upper()
        await self.app(scope, receive, send)


shop = FastAPI()
shop.add_middleware(MethodOverride)
app = shop


@shop.get("/")
def home():
    return "open"


@shop.post("/limited-drops/{drop}/orders", status_code=201)
def order(drop: int, x_case: str | None = Header(default=None)):
    return PlainTextResponse(sell(x_case, drop), status_code=201)


@shop.api_route("/echo", methods=METHODS)
@shop.api_route("/echo/{rest:path}", methods=METHODS)
async def show(request: Request):
    target = request.scope["raw_path"].decode("latin-1")
    query = request.scope["query_string"].decode("latin-1")
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.headers.raw]
    text = echo(request.method, f"{target}?{query}" if query else target, headers, await request.body())
    return Response(text, media_type="application/json")


@shop.api_route("/answer", methods=METHODS)
def answer(spec: str):
    spec = Spec(spec)
    if spec.pieces:
        response = StreamingResponse(iter(spec.pieces), status_code=spec.status)
    else:
        response = Response(spec.body, status_code=spec.status)
    for name, value in spec.headers:
        response.headers.append(name, value)
    return response


@shop.api_route("/file", methods=["GET", "HEAD"])
def file():
    return FileResponse(FILE)
