"""A shop on Flask, for gunicorn and for uWSGI."""

import io

from flask import Flask, Response, request, send_file
from werkzeug.formparser import parse_form_data

from common import FILE, Spec, echo, environ_headers, sell

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"]


class MethodOverride:
    """Takes the method from a header, the query or a form, before Flask routes."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        asked = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE") or self.parameter(environ)
        if asked and asked.upper() in METHODS:
            environ["REQUEST_METHOD"] = asked.upper()
        return self.app(environ, start_response)

    @staticmethod
    def parameter(environ):
        for pair in environ.get("QUERY_STRING", "").split("&"):
            name, _, value = pair.partition("=")
            if name == "_method":
                return value
        if "form" not in environ.get("CONTENT_TYPE", ""):
            return None
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        _, form, _ = parse_form_data(dict(environ))
        environ["wsgi.input"] = io.BytesIO(body)
        return form.get("_method")


app = Flask(__name__)
app.wsgi_app = MethodOverride(app.wsgi_app)


@app.get("/")
def home():
    return "open"


@app.post("/limited-drops/<int:drop>/orders")
def order(drop):
    return sell(request.headers.get("X-Case"), drop), 201


@app.route("/echo", methods=METHODS)
@app.route("/echo/<path:rest>", methods=METHODS)
def show(rest=None):
    environ = request.environ
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    text = echo(request.method, target, environ_headers(environ), request.get_data())
    return Response(text, content_type="application/json")


@app.route("/answer", methods=METHODS)
def answer():
    spec = Spec(request.args["spec"])
    body = iter(spec.pieces) if spec.pieces else spec.body
    response = Response(body, status=spec.status)
    for name, value in spec.headers:
        if name.lower() == "content-type":
            del response.headers[name]
        response.headers.add(name, value)
    return response


@app.get("/file")
def file():
    return send_file(FILE, conditional=True, etag=True)
