"""fetch_wgpu.py FOLDER: wgpu-native and webgpu.h from the wheel `wgpu` of PyPI, into FOLDER/wgpu/resources.

pip fetches it where there is one, since it knows of mirrors and proxies; else the index is asked here."""
import hashlib
import io
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import urllib.request
import zipfile

VERSION = "0.32.0"  # that of wgpu-native 29, which backends/webgpu/runtime.c knows
WANTED = ("libwgpu_native-release.so", "libwgpu_native-release.dylib", "wgpu_native-release.dll", "webgpu.h", "wgpu.h")


def by_pip():
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, f"wgpu=={VERSION}"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        wheels = list(pathlib.Path(folder).glob("wgpu-*.whl"))
        return wheels[0].read_bytes() if done.returncode == 0 and wheels else None


def by_index():
    with urllib.request.urlopen("https://pypi.org/pypi/wgpu/json", timeout=30) as answer:
        files = json.load(answer)["releases"][VERSION]
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    system = {"Linux": "manylinux", "Darwin": "macosx", "Windows": "win"}[platform.system()]
    if system == "macosx":
        machine = platform.machine()
    for file in files:
        if system in file["filename"] and machine in file["filename"]:
            with urllib.request.urlopen(file["url"], timeout=120) as answer:
                wheel = answer.read()
            if hashlib.sha256(wheel).hexdigest() != file["digests"]["sha256"]:
                raise OSError(f"{file['filename']} has another SHA-256 than the index says")
            return wheel
    return None


def main():
    to = pathlib.Path(sys.argv[1]) / "wgpu" / "resources"
    wheel = None
    for way in (by_pip, by_index):
        try:
            wheel = way()
        except (OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            print(error, file=sys.stderr)
        if wheel:
            break
    if not wheel:
        return 1
    to.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(wheel)) as all_files:
        names = [n for n in all_files.namelist() if n.startswith("wgpu/resources/") and n.rsplit("/", 1)[1] in WANTED]
        for name in sorted(names, key=lambda n: n.endswith("webgpu.h")):  # the header last: it is what others look for
            (to / name.rsplit("/", 1)[1]).write_bytes(all_files.read(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
