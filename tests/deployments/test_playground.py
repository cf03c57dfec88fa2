"""The page at /: whole in itself, and speaking of routes and fields that there are."""

import re
from html.parser import HTMLParser

from deployments.schema import SpeechBody
from pipeline.audio import FORMATS


class Page(HTMLParser):
    """Ids, what ids the script asks for, what the page loads, and the options of the formats."""

    def __init__(self, html):
        super().__init__()
        self.ids, self.loads = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.loads += [attributes[name] for name in ("src", "href") if name in attributes]


def test_the_page_needs_nothing_from_elsewhere(client):
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert all(load.startswith("data:") for load in Page(answer.text).loads)
    assert not re.search(r"https?://(?!www\.w3\.org)", answer.text)


def test_the_script_finds_every_element_and_asks_for_routes_that_there_are(client):
    html = client.get("/").text
    ids = Page(html).ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'\$\("([a-z]+)"\)', html)) <= set(ids)
    paths = client.get("/openapi.json").json()["paths"]
    asked = set(re.findall(r'(?:ask|URL)\("(v1/[a-z/]+)"', html))
    assert asked == {"v1/audio/speech", "v1/audio/voices"}
    assert {f"/{path}" for path in asked} <= set(paths)


def test_it_offers_every_format_and_sends_fields_that_there_are(client):
    html = client.get("/").text
    formats = re.search(r'<select[^>]*id="format".*?</select>', html, re.DOTALL)[0]
    assert set(re.findall(r"<option[^>]*>(\w+)", formats)) == set(FORMATS)
    for name in re.findall(r"\b(input|voice|ref_audio|speed|stream|response_format|sample_rate|channels):", html):
        assert name in SpeechBody.model_fields
