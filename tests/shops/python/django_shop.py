"""A shop on Django, for gunicorn."""

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import FileResponse, HttpResponse, HttpResponseNotAllowed, StreamingHttpResponse
from django.urls import path, re_path

from common import FILE, Spec, echo, environ_headers, sell

settings.configure(
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["django_shop.method_override", "django.middleware.common.CommonMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a shop that keeps none",
)
django.setup()


def method_override(get_response):
    """Takes the method from a header, the query or a form."""

    def override(request):
        asked = (
            request.headers.get("X-HTTP-Method-Override")
            or request.GET.get("_method")
            or request.POST.get("_method")
        )
        if asked:
            request.method = asked.upper()
        return get_response(request)

    return override


def home(request):
    return HttpResponse("open")


def order(request, drop):
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    return HttpResponse(sell(request.headers.get("X-Case"), drop), status=201)


def show(request, rest=None):
    environ = request.environ
    text = echo(request.method, environ["RAW_URI"], environ_headers(environ), request.body)
    return HttpResponse(text, content_type="application/json")


def answer(request):
    spec = Spec(request.GET["spec"])
    if spec.pieces:
        response = StreamingHttpResponse(iter(spec.pieces), status=spec.status)
    else:
        response = HttpResponse(spec.body, status=spec.status)
    for name, value in spec.headers:
        # Django keeps one value a name; further cookies have a way of their own.
        response.headers[name] = value
    return response


def file(request):
    return FileResponse(open(FILE, "rb"))


urlpatterns = [
    path("", home),
    path("limited-drops/<int:drop>/orders", order),
    re_path(r"^echo(/.*)?$", show),
    path("answer", answer),
    path("file", file),
]
app = get_wsgi_application()
