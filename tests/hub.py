"""A stand-in for the Hugging Face Hub: a server on this machine that keeps repositories in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Files = dict[str, bytes]
REPOSITORY = r"(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)"


class Hub(ThreadingHTTPServer):
    """Speaks what the Hub's client asks for when it creates, commits, lists and downloads."""

    def __init__(self, repositories: dict[str, Files] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.commits: dict[tuple[str, str], tuple[str, Files]] = {}  # by repository and revision
        self.log: list[dict[str, Any]] = []  # bodies of what was created and committed
        for repo, files in (repositories or {}).items():
            self.commit(repo, "main", files)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repo: str, revision: str, files: Files) -> str:
        digest = hashlib.sha1(b"".join(name.encode() + content for name, content in sorted(files.items()))).hexdigest()
        self.commits[repo, revision] = self.commits[repo, digest] = digest, files
        return digest


class Request(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if found := re.fullmatch(rf"/api/{REPOSITORY}(?:/revision/(?P<revision>[^/]+))?", path):
            self.about(found)
        elif found := re.fullmatch(rf"/api/{REPOSITORY}/tree/(?P<revision>[^/]+).*", path):
            self.tree(found)
        elif found := re.fullmatch(r"/(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.file(*found.groups())
        else:
            self.answer({"error": f"{path} is not known here"}, 404)

    do_HEAD = do_GET

    def about(self, found: re.Match[str]) -> None:
        if (kept := self.kept(found["repo"], found["revision"] or "main")) is not None:
            digest, files = kept
            self.answer({"id": found["repo"], "sha": digest, "siblings": [{"rfilename": name} for name in files]})

    def tree(self, found: re.Match[str]) -> None:
        if (kept := self.kept(found["repo"], found["revision"])) is not None:
            rows = [{"type": "file", "path": name, "size": len(c), "oid": etag(c)} for name, c in kept[1].items()]
            self.answer(rows)

    def file(self, repo: str, revision: str, name: str) -> None:
        if (kept := self.kept(repo, revision)) is not None:
            if name not in kept[1]:
                self.answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            else:
                content = kept[1][name]
                self.answer(content, headers={"ETag": f'"{etag(content)}"', "X-Repo-Commit": kept[0]})

    def kept(self, repo: str, revision: str) -> tuple[str, Files] | None:
        found = self.server.commits.get((repo, revision))
        if found is None:
            known = any(name == repo for name, _ in self.server.commits)
            code = "RevisionNotFound" if known else "RepoNotFound"
            self.answer({"error": code}, 404, {"X-Error-Code": code})
        return found

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        path, _, query = self.path.partition("?")
        if path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        elif found := re.fullmatch(rf"/api/{REPOSITORY}/branch/(?P<branch>.+)", path):
            self.server.commits[found["repo"], found["branch"]] = self.server.commits[found["repo"], "main"]
            self.answer({})
        elif re.fullmatch(rf"/api/{REPOSITORY}/preupload/.+", path):
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self.answer({"files": [{**file, "shouldIgnore": False, "oid": None} for file in files]})
        elif found := re.fullmatch(rf"/api/{REPOSITORY}/commit/(?P<revision>.+)", path):
            self.take(found["repo"], found["revision"], body, create_pr="create_pr=1" in query)
        else:
            self.answer({"error": f"{path} is not known here"}, 404)

    def create(self, wanted: dict[str, Any]) -> None:
        repo = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        private = wanted.get("private", wanted.get("visibility") == "private")  # as older and newer clients say it
        self.server.log.append({"repo": repo, "private": private})
        if (repo, "main") in self.server.commits:
            self.answer({"error": "exists", "url": f"{self.server.address}/{repo}"}, 409)
        else:
            self.server.commit(repo, "main", {})
            self.answer({"url": f"{self.server.address}/{repo}"})

    def take(self, repo: str, revision: str, body: bytes, *, create_pr: bool) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        new = {line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines[1:]}
        before = self.server.commits[repo, revision][1]
        digest = self.server.commit(repo, "refs%2Fpr%2F1" if create_pr else revision, {**before, **new})
        self.server.log.append({**lines[0]["value"], "revision": revision})
        url = f"{self.server.address}/{repo}"
        answer = {"success": True, "commitUrl": f"{url}/commit/{digest}", "commitOid": digest}
        self.answer({**answer, "pullRequestUrl": f"{url}/discussions/1"} if create_pr else answer)

    def answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def serving(hub: Hub, home: Path) -> Iterator[dict[str, str]]:
    """The environment of a process that takes ``hub`` for the Hub; the client reads it when it is imported."""
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    # A proxy of the caller's must not stand between the client and this server.
    local = {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_TOKEN": "hf_test", "NO_PROXY": "127.0.0.1"}
    yield {**os.environ, **local, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
    hub.shutdown()
    hub.server_close()
