"""Downloads from a server in this process, by the real pooch: whole, wrong, broken off."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import zipfile
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious_paper.worlds.data import fetch_images, load_images
from cautious_paper.worlds.data.idx import write_idx
from cautious_paper.worlds.data.sources import SETS, SOURCES, RemoteFile, Source


class Server:
    """Serves a folder; `cut` names files whose second half is never sent, `asked` lists what was asked for."""

    def __init__(self, folder):
        self.cut: set[str] = set()
        self.says_size = True
        self.asked: list[str] = []
        state = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self):
                name = self.path.lstrip("/")
                state.asked.append(name)
                if not (folder / name).is_file():
                    self.send_error(404)
                    return
                content = (folder / name).read_bytes()
                self.send_response(200)
                if state.says_size:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if name in state.cut else content)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}/"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def remote(path, algorithm) -> RemoteFile:
    content = path.read_bytes()
    return RemoteFile(path.name, f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}", len(content))


def write_pair(folder, start, label):
    images = torch.full((5, 28, 28), label, dtype=torch.uint8)
    write_idx(folder / f"{start}images-idx3-ubyte.gz", images)
    write_idx(folder / f"{start}labels-idx1-ubyte.gz", torch.full((5,), label, dtype=torch.uint8))


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    running = Server(tmp_path / "served")
    yield running
    running.close()


@pytest.fixture
def sources(tmp_path, server) -> dict[str, Source]:
    """As the published ones, but small and from our server."""
    served = tmp_path / "served"
    write_pair(served, "train-", 3)
    write_pair(served, "t10k-", 4)
    members = tmp_path / "members"
    write_pair(members, "emnist-letters-test-", 26)
    with zipfile.ZipFile(served / "gzip.zip", "w") as archive:
        archive.writestr("gzip/emnist-balanced-mapping.txt", "not wanted")
        for path in sorted(members.iterdir()):
            archive.write(path, f"gzip/{path.name}")
    own = {}
    for name in ("digits", "fashion"):
        files = tuple(remote(served / file.name, "md5") for file in SOURCES[name].files)
        own[name] = replace(SOURCES[name], address=server.address, files=files)
    files = tuple(remote(members / file.name, "sha256") for file in SOURCES["letters"].files)
    archive = remote(served / "gzip.zip", "md5")
    own["letters"] = replace(SOURCES["letters"], address=server.address, files=files, archive=archive)
    return own


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_fetched_sets_are_kept_in_the_cache_and_used(tmp_path, server, sources):
    told: list[tuple[str, int, int]] = []
    paths = fetch_images(list(SETS), lambda *words: told.append(words), sources=sources)
    assert files_in(tmp_path / "cache") == sorted(str(path.relative_to(tmp_path / "cache")) for path in paths)
    assert len(paths) == 4 + 2 + 2
    assert load_images("digits", "train").labels.tolist() == [3] * 5
    assert load_images("fashion").origin == "cache (fashion-mnist): 5 of the 10,000"
    assert load_images("letters").labels.tolist() == [25] * 5
    assert {(title, done == total) for title, done, total in told} >= {("gzip.zip", True)}
    assert all(0 < done <= total for _, done, total in told)


def test_what_is_there_is_not_downloaded_again_and_what_is_damaged_is(tmp_path, server, sources):
    fetch_images(["digits", "letters"], sources=sources)
    server.asked.clear()
    told = []
    paths = fetch_images(["digits", "letters"], lambda *words: told.append(words), sources=sources)
    assert server.asked == []
    assert told == [(path.name, 1, 1) for path in paths]
    paths[0].write_bytes(b"damaged")
    paths[-1].write_bytes(b"damaged")
    fetch_images(["digits", "letters"], sources=sources)
    assert server.asked == [paths[0].name, "gzip.zip"]
    assert len(load_images("letters")) == 5


def test_a_folder_can_be_chosen(tmp_path, sources):
    fetch_images("fashion", folder=tmp_path / "mine", sources=sources)
    assert not (tmp_path / "cache").exists()
    assert load_images("fashion", data=tmp_path / "mine").labels.tolist() == [4] * 5


@pytest.mark.parametrize("says_size", [True, False])
@pytest.mark.parametrize(("name", "file"), [("digits", "t10k-images-idx3-ubyte.gz"), ("letters", "gzip.zip")])
def test_a_download_that_breaks_off_leaves_nothing_that_could_be_used(tmp_path, server, sources, name, file, says_size):
    server.cut.add(file)
    server.says_size = says_size
    with pytest.raises((MissingFileError, BadFileError), match=file) as caught:
        fetch_images([name], sources=sources)
    assert isinstance(caught.value, MissingFileError if says_size else BadFileError)
    before = [f"mnist/train-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1")] if name == "digits" else []
    assert files_in(tmp_path / "cache") == before
    assert load_images("digits", "test").origin.startswith("embedded default")
    server.cut.clear()
    fetch_images([name], sources=sources)
    assert load_images(name).origin.startswith("cache")


def test_wrong_bytes_are_refused(tmp_path, server, sources):
    (tmp_path / "served" / "t10k-images-idx3-ubyte.gz").write_bytes(b"<html>please log in to this network</html>")
    with pytest.raises(BadFileError, match=r"checksum md5:.*was deleted"):
        fetch_images(["fashion"], sources=sources)
    assert files_in(tmp_path / "cache") == []


@pytest.mark.parametrize("change", [{"checksum": "sha256:" + "0" * 64}, {"num_bytes": 1}, {"name": "another.gz"}])
def test_a_changed_archive_is_refused(tmp_path, sources, change):
    letters = sources["letters"]
    files = (letters.files[0], replace(letters.files[1], **change))
    with pytest.raises(BadFileError, match=r"gzip\.zip"):
        fetch_images(["letters"], sources={"letters": replace(letters, files=files)})
    assert files_in(tmp_path / "cache") == []
    with pytest.raises(MissingFileError, match="cautious data fetch letters"):
        load_images("letters")


def test_an_archive_that_is_none_is_refused(tmp_path, server, sources):
    (tmp_path / "served" / "gzip.zip").write_bytes(b"no zip at all")
    archive = remote(tmp_path / "served" / "gzip.zip", "md5")
    with pytest.raises(BadFileError, match="not a complete zip"):
        fetch_images(["letters"], sources={"letters": replace(sources["letters"], archive=archive)})
    assert files_in(tmp_path / "cache") == []


def test_what_cannot_be_reached_is_said_with_the_way_out(server, sources):
    lost = replace(sources["fashion"], files=(RemoteFile("nowhere.gz", "md5:0"),))
    with pytest.raises(MissingFileError, match=r"nowhere\.gz: could not be downloaded \(404.*--data"):
        fetch_images(["fashion"], sources={"fashion": lost})
    with pytest.raises(InvalidInputError, match="'fashion'"):
        fetch_images(["fashion", "faces"], sources=sources)
    assert "t10k-images-idx3-ubyte.gz" not in server.asked


def test_the_published_sources_fill_the_layouts_that_are_read():
    """What would be fetched is exactly what `load_images` looks for, with checksums of the right length."""
    for name, known in SETS.items():
        source = SOURCES[name]
        wanted = {f"{path}.gz" for split in known.splits.values() for path in _pair(split, source.folder)}
        assert {f"{source.folder}/{file.name}" for file in source.files} == wanted
        for file in (*source.files, *filter(None, [source.archive])):
            algorithm, digest = file.checksum.split(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[algorithm]


def _pair(split, folder):
    layout = next(layout for layout in split.layouts if layout.folder == folder)
    return layout.images, layout.labels


def test_what_a_killed_download_left_is_removed_by_the_next(tmp_path, sources):
    cache = tmp_path / "cache"
    old, new = cache / sources["letters"].folder / ".fetch-old", cache / sources["letters"].folder / ".fetch-new"
    for left in (old, new):
        left.mkdir(parents=True)
        (left / "tmp1234").write_bytes(b"half of an archive")
    hours_ago = time.time() - 10_000
    for path in (old / "tmp1234", old):
        os.utime(path, (hours_ago, hours_ago))
    fetch_images(["letters"], sources=sources)
    assert not old.exists()
    assert new.exists()  # perhaps another process that is at it now
    assert len(load_images("letters")) == 5


def test_fetched_files_are_as_readable_as_any_other(tmp_path, sources):
    (tmp_path / "own").write_text("a file")
    for path in fetch_images(list(SETS), sources=sources):
        assert path.stat().st_mode == (tmp_path / "own").stat().st_mode
