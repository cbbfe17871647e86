"""A fake Kubernetes API server that answers from a table."""

from typing import Any

import httpx

from agents.kubernetes import Api


class Answers:
    """A table of answers by the last part of the path, which also records requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers[request.url.path.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, list):
            answer = answer.pop(0)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


def api(answers: Answers) -> Api:
    return Api("http://kubernetes", lambda: "token", transport=httpx.MockTransport(answers))
