"""Writes a wheel with the program bringupd and the Python package, the same bytes each time."""

import argparse
import base64
import hashlib
import os
import time
import zipfile

METADATA = """\
Metadata-Version: 2.4
Name: bringupd
Version: {version}
Summary: Brings up a cluster inside a batch allocation, and runs a driver on it
License-Expression: Apache-2.0
License-File: LICENSE
License-File: NOTICE
License-File: THIRD_PARTY_LICENSES
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

One daemon per node, started by srun or another launcher. They find each other, start Ray, services
or ranks, prove that every node is ready, and end the whole job within seconds when any part of it
fails. This package has the program and a Python module for the programs that it runs.
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: packaging/wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
Tag: py3-none-{old_platform}
"""

# Where man and the shells look, relative to share.
SHARED = (
    "man/man1/bringupd.1.gz",
    "bash-completion/completions/bringupd",
    "zsh/site-functions/_bringupd",
    "fish/vendor_completions.d/bringupd.fish",
)


def main():
    parser = argparse.ArgumentParser()
    for name in "version", "machine", "program", "sbom", "share", "package", "out":
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()

    # manylinux2014 is the name of glibc 2.17 for pip before 20.3, which Python 3.9 of RHEL 8 has.
    platform, old_platform = f"manylinux_2_17_{arguments.machine}", f"manylinux2014_{arguments.machine}"
    name = f"bringupd-{arguments.version}"
    info = f"{name}.dist-info"
    # pip copies the program to the folder of scripts, and the other files to share.
    files = {
        f"{name}.data/scripts/bringupd": read(arguments.program),
        f"{name}.data/data/share/doc/bringupd/CHANGELOG.md": read("CHANGELOG.md"),
        f"{info}/METADATA": METADATA.format(version=arguments.version).encode(),
        f"{info}/WHEEL": WHEEL.format(platform=platform, old_platform=old_platform).encode(),
        f"{info}/sboms/bringupd.cdx.json": read(arguments.sbom),
    }
    for file in SHARED:
        files[f"{name}.data/data/share/{file}"] = read(os.path.join(arguments.share, file))
    for file in "LICENSE", "NOTICE", "THIRD_PARTY_LICENSES":
        files[f"{info}/licenses/{file}"] = read(file)
    for file in sorted(os.listdir(arguments.package)):
        if file.endswith(".py") or file == "py.typed":
            files[f"bringupd/{file}"] = read(os.path.join(arguments.package, file))
    record = [f"{path},sha256={digest(content)},{len(content)}\n" for path, content in sorted(files.items())]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()

    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(os.path.join(arguments.out, f"{name}-py3-none-{platform}.{old_platform}.whl"), "w") as wheel:
        # By convention the metadata is at the end, and RECORD is its last file.
        for path, content in sorted(files.items(), key=lambda item: (item[0].startswith(info), item[0].endswith("RECORD"), item[0])):
            entry = zipfile.ZipInfo(path, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, content, compresslevel=9)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
