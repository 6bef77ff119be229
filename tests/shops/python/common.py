"""What the shops in Python share: the book of sales, and answers made to order."""

import base64
import gzip
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "..", "file.txt")


def sell(case, drop):
    """Writes a sale down and returns the text of the answer."""
    book = os.open(os.environ["SHOP_SALES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(book, f"{case or '-'} {drop}\n".encode())
    os.close(book)
    return f"sold {drop}"


def echo(method, target, headers, body):
    """What the shop saw, as JSON. `headers` are pairs of text."""
    saw = {"method": method, "target": target, "headers": headers, "body": base64.b64encode(body).decode()}
    return json.dumps(saw)


def environ_headers(environ):
    """The headers of a WSGI request. Names have lost their case and their punctuation."""
    names = [name for name in environ if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")]
    return [[name.removeprefix("HTTP_").lower().replace("_", "-"), environ[name]] for name in names]


class Spec:
    """An answer made to order."""

    def __init__(self, text):
        spec = json.loads(text)
        self.status = spec.get("status", 200)
        self.headers = [tuple(pair) for pair in spec.get("headers", [])]
        self.body = spec.get("body", "").encode() * spec.get("times", 1)
        if spec.get("gzip"):
            self.body = gzip.compress(self.body, mtime=0)
            self.headers.append(("Content-Encoding", "gzip"))
        pieces = spec.get("pieces", 0)
        self.pieces = [self.body] * pieces if pieces else None
