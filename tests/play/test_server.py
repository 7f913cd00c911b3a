"""The playground's server hands out its own files, to this machine, and nothing else."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from cautious.errors import CautiousError
from cautious_paper.play import server as server_module
from cautious_paper.play.server import STATIC, PlayServer, files_of, own_hosts

MEGABYTE = 1e6


def ask(server, path="/", method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    headers = {"Host": f"127.0.0.1:{server.server_port}" if host is None else host}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@contextlib.contextmanager
def serving():
    with PlayServer(0) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


def test_it_hands_out_the_page_and_its_weights(server):
    answer, body = ask(server)
    assert answer.status == 200
    assert body == (STATIC / "index.html").read_bytes()
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    for path, kind in {"/worker.js?x=1": "text/javascript", "/weights/images.bin": "application/octet-stream"}.items():
        answer, body = ask(server, path)
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith(kind)
        assert body


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/../server.py",
        "/..%2fserver.py",
        "//etc/passwd",
        "/weights",
        "/weights/README.md",
        "/weights/../index.html",
    ],
)
def test_it_has_no_other_paths(server, path):
    assert ask(server, path)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"])
def test_it_answers_get_only(server, method):
    assert ask(server, method=method)[0].status == 405


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1", "127.0.0.1:1", "localhost.example.com:{port}", ""])
def test_it_refuses_other_hosts(server, host):
    answer, body = ask(server, host=host.format(port=server.server_port))
    assert answer.status == 403
    assert b"127.0.0.1 only" in body


def test_the_usual_port_is_left_out_of_its_name():
    assert own_hosts(80) == {"127.0.0.1:80", "localhost:80", "127.0.0.1", "localhost"}
    assert own_hosts(8420) == {"127.0.0.1:8420", "localhost:8420"}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (f"GET /{'x' * 70_000} HTTP/1.1\r\n\r\n", "address is too long"),
        ("what is this\r\n\r\n", "not a request that can be read"),
        ("POST / HTTP/1.1\r\n\r\n", "GET requests only"),
    ],
)
def test_what_it_refuses_it_refuses_for_its_own_reason(server, sent, words):
    with socket.create_connection(server.server_address, timeout=10) as connection:
        connection.sendall(sent.encode())
        answer = b""
        while words.encode() not in answer and (part := connection.recv(65536)):
            answer += part
    assert words in answer.decode()


def test_localhost_is_this_machine_too(server):
    assert ask(server, host=f"localhost:{server.server_port}")[0].status == 200


def test_it_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_port_in_use_is_said(server):
    with pytest.raises(CautiousError, match=r"is in use; name another with --port"):
        PlayServer(server.server_port)
    with pytest.raises(CautiousError, match="between 0 and 65535"):
        PlayServer(70_000)


def test_without_a_port_a_free_one_is_taken():
    with PlayServer() as one, PlayServer() as two:
        assert one.server_port != two.server_port


def test_a_folder_without_the_page_is_said(tmp_path):
    with pytest.raises(CautiousError, match="install the package again"):
        PlayServer(0, tmp_path)


def test_the_page_is_small_and_names_no_other_host():
    files = set(files_of(STATIC).values())
    assert sum(path.stat().st_size for path in files) < 8 * MEGABYTE
    for path in files:
        if path.suffix in (".html", ".css", ".js"):
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, path
            assert "https://" not in text, path


def test_a_browser_that_goes_away_is_not_reported(server, capfd):
    for _ in range(5):
        with socket.create_connection(server.server_address) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed
            connection.sendall(
                f"GET /weights/images.bin HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode()
            )
            connection.recv(100)
    assert ask(server)[0].status == 200
    assert capfd.readouterr().err == ""


def test_the_command_serves_until_ctrl_c():
    call = [sys.executable, "-m", "cautious", "play", "--no-browser", "--port", "0"]
    with subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        line = process.stdout.readline()
        assert "Ctrl-C ends it" in line
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert process.stderr.read() == ""


def test_the_command_says_which_port_is_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        call = [sys.executable, "-m", "cautious", "play", "--no-browser", "--port", str(port)]
        done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"--port {port} is in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_request_that_comes_byte_by_byte_is_cut_off(monkeypatch):
    """Each byte is in time, the whole is not; the usual limit of the library is for each read."""
    monkeypatch.setattr(server_module, "SECONDS_PER_REQUEST", 0.6)
    with serving() as server, socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as slow:
        began, ended = time.monotonic(), None
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        slow.settimeout(0.1)
        while ended is None and time.monotonic() - began < 8:
            try:
                slow.sendall(b"x")
                if slow.recv(1000) == b"":
                    ended = time.monotonic() - began
            except TimeoutError:
                pass
            except OSError:
                ended = time.monotonic() - began
        assert ended is not None
        assert ended < 5
        assert ask(server)[0].status == 200


def test_connections_beyond_the_most_are_closed_at_once(monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 3)
    with serving() as server, contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=10))
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as further:
            assert further.recv(10) == b""
        held.close()
        for _ in range(100):  # until the three threads are gone
            with contextlib.suppress(OSError, http.client.HTTPException):
                if ask(server)[0].status == 200:
                    return
            time.sleep(0.1)
        pytest.fail("no connection is accepted any more")


FEW_DESCRIPTORS = """
import resource, socket, threading, time
from cautious_paper.play.server import PlayServer
with PlayServer(0) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    held = [socket.socket() for _ in range(20)]
    fewest = max(one.fileno() for one in held) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (fewest, fewest))
    held.pop(7).connect(("127.0.0.1", server.server_port))  # accepted by the system, and no number is left for the server
    taken = socket.socket()
    before = time.process_time()
    time.sleep(2)
    print(time.process_time() - before)
"""


def test_few_file_descriptors_do_not_make_it_spin():
    call = [sys.executable, "-c", FEW_DESCRIPTORS]
    spent = subprocess.run(call, capture_output=True, text=True, timeout=60, check=True).stdout
    assert float(spent) < 0.5
