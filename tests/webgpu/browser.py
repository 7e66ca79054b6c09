#!/usr/bin/env python3
"""browser.py FOLDER [SECONDS]: whether a browser's compiler takes every .wgsl in FOLDER (as CT_WEBGPU_DUMP writes them).

A page in a headless Chromium compiles them (compile.html). Exit status 0: it took all; 1: not; 77: there is no Chromium that has WebGPU."""
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse

AT_ONCE = 100
# SwiftShader is the adapter that Chromium brings along; a sandbox needs rights that containers do not have.
FLAGS = ["--headless=new", "--no-sandbox", "--no-first-run", "--disable-gpu-sandbox", "--enable-unsafe-webgpu",
         "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan", "--disable-dev-shm-usage"]


def read_texts(folder):
    """(name, text) of each, without those that were met before."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.wgsl")):
        found.setdefault(path.read_text(), path.name)
    return [(name, text) for text, name in found.items()]


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, texts):
        super().__init__(("127.0.0.1", 0), Handler)
        self.texts, self.answer, self.answered = texts, None, threading.Event()
        self.page = (pathlib.Path(__file__).parent / "compile.html").read_bytes()


class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, status, body=b"", kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        if url.path == "/":
            self.reply(200, self.server.page, "text/html")
        elif url.path == "/texts":
            first = int(urllib.parse.parse_qs(url.query)["first"][0])
            self.reply(200, json.dumps(self.server.texts[first:first + AT_ONCE]).encode(), "application/json")
        else:
            self.reply(404)

    def do_POST(self):
        self.server.answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(204)
        self.server.answered.set()

    def log_message(self, *_):
        pass


def main():
    folder, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 300
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        print("there is no Chromium")
        return 77
    texts = read_texts(folder)
    if not texts:
        print(f"there is no .wgsl in {folder}")
        return 1
    server = Server(texts)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen([browser, *FLAGS, f"--user-data-dir={profile}", f"http://127.0.0.1:{server.server_port}/"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answered = server.answered.wait(seconds)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if not answered:
        print(f"the page gave no answer in {seconds:.0f} seconds")
        return 1
    answer = server.answer
    if "missing" in answer:
        print(answer["missing"])
        return 77
    for line in answer["refused"][:40]:
        print(line)
    print(f"{answer['compiled']} texts compiled, {len(answer['refused'])} refused")
    return 1 if answer["refused"] or answer["compiled"] != len(texts) else 0


if __name__ == "__main__":
    sys.exit(main())
