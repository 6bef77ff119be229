"""A shop on aiohttp, with a server of its own."""

import sys

from aiohttp import web

from common import FILE, Spec, echo, sell


async def overridden(request):
    """Takes the method from a header, the query or a form: the request with that method."""
    asked = request.headers.get("X-HTTP-Method-Override") or request.query.get("_method")
    if not asked and request.content_type == "application/x-www-form-urlencoded":
        asked = (await request.post()).get("_method")
    # Upper case is Unicode's.
    return asked.upper() if asked else request.method


async def home(request):
    return web.Response(text="open")


async def order(request):
    if await overridden(request) != "POST":
        raise web.HTTPMethodNotAllowed(request.method, ["POST"])
    try:
        drop = int(request.match_info["drop"])
    except ValueError:
        raise web.HTTPNotFound() from None
    return web.Response(text=sell(request.headers.get("X-Case"), drop), status=201)


async def show(request):
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.raw_headers]
    text = echo(request.method, request.raw_path, headers, await request.read())
    return web.Response(text=text, content_type="application/json")


async def answer(request):
    spec = Spec(request.query["spec"])
    if not spec.pieces:
        response = web.Response(body=spec.body, status=spec.status)
        for name, value in spec.headers:
            response.headers.add(name, value)
        return response
    response = web.StreamResponse(status=spec.status)
    for name, value in spec.headers:
        response.headers.add(name, value)
    await response.prepare(request)
    for piece in spec.pieces:
        await response.write(piece)
    await response.write_eof()
    return response


async def file(request):
    return web.FileResponse(FILE)


app = web.Application(client_max_size=8 * 1024 * 1024)
app.router.add_get("/", home)
app.router.add_route("*", "/limited-drops/{drop}/orders", order)
app.router.add_route("*", "/echo", show)
app.router.add_route("*", "/echo/{rest:.*}", show)
app.router.add_route("*", "/answer", answer)
app.router.add_get("/file", file)

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None, reuse_port=False)
