"""A shop on CherryPy, with a server of its own. Its dispatcher takes any punctuation in a path for `_`."""

import sys

import cherrypy
from cherrypy.lib.static import serve_file

from common import FILE, Spec, echo, environ_headers, sell


def overridden():
    """Takes the method from a header, the query or a form."""
    request = cherrypy.request
    asked = request.headers.get("X-HTTP-Method-Override") or request.params.pop("_method", None)
    return asked.upper() if isinstance(asked, str) else request.method


class LimitedDrops:
    @cherrypy.expose
    def default(self, drop, what, **params):
        if what != "orders" or overridden() != "POST":
            raise cherrypy.NotFound()
        try:
            drop = int(drop)
        except ValueError:
            raise cherrypy.NotFound() from None
        cherrypy.response.status = 201
        return sell(cherrypy.request.headers.get("X-Case"), drop)


class Shop:
    limited_drops = LimitedDrops()

    @cherrypy.expose
    def index(self):
        return "open"

    @cherrypy.expose
    @cherrypy.config(**{"request.process_request_body": False})
    def echo(self, *rest, **params):
        request = cherrypy.request
        body = request.rfile.read()
        environ = request.wsgi_environ
        cherrypy.response.headers["Content-Type"] = "application/json"
        return echo(request.method, environ["REQUEST_URI"], environ_headers(environ), body).encode()

    @cherrypy.expose
    def answer(self, spec):
        spec = Spec(spec)
        response = cherrypy.response
        response.status = spec.status
        for name, value in spec.headers:
            response.headers[name] = value
        if not spec.pieces:
            return spec.body
        response.stream = True
        return iter(spec.pieces)

    @cherrypy.expose
    def file(self):
        return serve_file(FILE, content_type="text/plain")


if __name__ == "__main__":
    cherrypy.config.update(
        {
            "engine.autoreload.on": False,
            "environment": "production",
            "log.screen": False,
            "server.socket_host": "127.0.0.1",
            "server.socket_port": int(sys.argv[1]),
        }
    )
    cherrypy.quickstart(Shop())
