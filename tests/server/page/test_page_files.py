"""The page's files over HTTP: what is served, under which policy, and how it is cached."""

from collections.abc import Callable
from html.parser import HTMLParser

import httpx
import pytest

from running_server import RunningServer

FILES = {
    "/": "text/html; charset=utf-8",
    "/page/page.css": "text/css; charset=utf-8",
    "/page/page.js": "text/javascript; charset=utf-8",
    "/page/icon.svg": "image/svg+xml",
}


def root(server: RunningServer) -> str:
    return server.url.removesuffix("/v1")


def get(server: RunningServer, path: str, **headers: str) -> httpx.Response:
    return httpx.get(root(server) + path, headers=headers)


class Tags(HTMLParser):
    """What a page refers to, and what of it its policy would refuse."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.inline: list[str] = []
        self.is_in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_in_script = tag in ("script", "style")
        self.references += [value for name, value in attrs if name in ("src", "href") and value]
        self.inline += [f"{tag} {name}" for name, _ in attrs if name == "style" or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self.is_in_script and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.is_in_script = False


@pytest.mark.parametrize("path", FILES)
def test_a_file_comes_with_its_type_and_a_strict_policy(server: RunningServer, path: str) -> None:
    response = get(server, path)
    assert response.status_code == 200
    assert response.headers["content-type"] == FILES[path]
    assert response.headers["x-content-type-options"] == "nosniff"
    policy = {
        name: sources for name, *sources in map(str.split, response.headers["content-security-policy"].split(";"))
    }
    assert policy["default-src"] == ["'self'"]
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == ["'none'"]
    assert policy["require-trusted-types-for"] == ["'script'"]
    assert "unsafe" not in response.headers["content-security-policy"]


def test_all_that_the_page_refers_to_is_here_and_nothing_is_inline(server: RunningServer) -> None:
    tags = Tags(get(server, "/").text)
    assert tags.inline == []
    assert len(tags.references) >= 4
    for reference in tags.references:
        assert reference.startswith("page/")
        assert get(server, f"/{reference}").status_code == 200


def test_scripts_import_only_what_is_served_and_preloaded(server: RunningServer) -> None:
    scripts = {name for name in Tags(get(server, "/").text).references if name.endswith(".js")}
    imported = set()
    for script in scripts:
        lines = get(server, f"/{script}").text.splitlines()
        imported |= {line.split('"')[1].replace("./", "page/") for line in lines if line.startswith("import ")}
    assert imported == scripts - {"page/page.js"}


def test_the_page_is_small(server: RunningServer) -> None:
    paths = ["/", *(f"/{reference}" for reference in set(Tags(get(server, "/").text).references))]
    assert sum(len(get(server, path).content) for path in paths) < 40_000


@pytest.mark.parametrize("path", FILES)
def test_an_unchanged_file_is_not_sent_again(server: RunningServer, path: str) -> None:
    first = get(server, path)
    etag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = get(server, path, **{"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert get(server, path, **{"If-None-Match": '"other"'}).status_code == 200


def test_etags_tell_files_apart(server: RunningServer) -> None:
    assert len({get(server, path).headers["etag"] for path in FILES}) == len(FILES)


def test_head_is_answered_without_a_body(server: RunningServer) -> None:
    whole, head = get(server, "/"), httpx.head(root(server) + "/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))


def test_other_paths_and_methods_answer_as_the_api_does(server: RunningServer) -> None:
    for response, status in ((get(server, "/page/none.js"), 404), (httpx.post(root(server) + "/"), 405)):
        assert response.status_code == status
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_the_page_is_no_part_of_the_api(server: RunningServer) -> None:
    paths = get(server, "/openapi.json").json()["paths"]
    assert not [path for path in paths if path == "/" or path.startswith("/page")]


def test_the_page_needs_no_key(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["secret"]})
    assert get(server, "/v1/models").status_code == 401
    assert [get(server, path).status_code for path in FILES] == [200] * len(FILES)
