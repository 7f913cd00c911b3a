"""The service of docs/deploy.md, run as it stands there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import numpy as np
import pytest

from cautious import CautiousPolicy, fit_ensemble

pytest.importorskip("fastapi", reason="the service needs FastAPI")
httpx = pytest.importorskip("httpx", reason="requests are made with httpx")
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


class Service:
    """Requests to an application in this process."""

    def __init__(self, app):
        self._app = app

    def get(self, path):
        return asyncio.run(self._request("GET", path))

    def post(self, path, json):
        return asyncio.run(self._request("POST", path, json=json))

    async def _request(self, method, path, **content):
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.request(method, path, **content)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    rng = np.random.default_rng(0)
    lactate, unit = rng.normal(size=120), rng.choice(["icu", "ward"], 120)
    paid = {"treat": lactate, "wait": -lactate, "refer": np.full(120, 0.1)}
    belief = fit_ensemble({"lactate": lactate, "unit": unit}, paid, num_models=20, num_epochs=10, progress=False)
    CautiousPolicy(belief, "1-of-20", bad_rows_action="refer").save(folder)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLICY", str(folder))
        names: dict[str, object] = {"__name__": "service"}
        exec(compile(code, str(PAGE), "exec"), names)
    return Service(names["app"]), CautiousPolicy.load(folder)


ROWS = [
    {"lactate": 1.5, "unit": "icu"},
    {"unit": "ward", "lactate": None},
    {"lactate": 40.0, "unit": "icu"},
    {"unit": "icu"},
    {"lactate": -1.5, "unit": "attic"},
]


def test_rows_are_decided_in_strict_json(client):
    service, policy = client
    answer = service.post("/decide", json=ROWS)
    assert answer.status_code == 200
    found = json.loads(answer.text, parse_constant=pytest.fail)
    assert found == policy.decide(ROWS).to_dict()
    assert {len(column) for column in found.values()} == {5}
    assert found["action"][1] == found["action"][3] == "refer"
    assert found["reason"][1] == "lactate is empty"
    assert found["departs"][1] is None


def test_mistakes_are_the_callers_and_named(client):
    service, _ = client
    answer = service.post("/decide", json=[{"lactate": 1.0, "unit": "icu", "lactat": 2.0}])
    assert answer.status_code == 422
    assert "'lactat' was not in the training" in answer.json()["detail"]
    assert service.post("/decide", json=[]).status_code == 422
    assert service.post("/decide", json="lactate").status_code == 422
    assert service.post("/explain", json=[{"lactate": [1.0], "unit": "icu"}]).status_code == 422


def test_it_explains_and_counts_departures(client):
    service, policy = client
    sentences = service.post("/explain", json=ROWS).json()
    assert sentences == list(policy.explain(ROWS).sentences)
    assert "lactate 40, above all 120 familiar rows" in sentences[2]
    before = service.get("/departures").json()["rows"]
    for _ in range(3):
        service.post("/decide", json=[ROWS[3]] * 100)
    found = service.get("/departures").json()
    assert found["rows"] == before + 300
    assert found["limit"] == 13
    assert found["windows"][-1]["not_judged"] == 100
    assert found["alarms"] >= 2
