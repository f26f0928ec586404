"""What the build does on systems that are not this one, as far as this one can imitate them.

    python tests/docs/other_systems.py

Newer distributions have compilers that predefine _FORTIFY_SOURCE, and a static OpenSSL that needs further libraries: a
module would be linked without these, and not load.  What newer compilers refuse in the generated wrapper is an error
everywhere, see bindings/python.cmake.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN = "SNIB_OPENSSL_OWN"  # defined if the extension has an OpenSSL of its own
NEEDED = "OPENSSL_sk_num"  # libssl has it from libcrypto


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-4000:]}")
    return done.stdout


def configure(folder: Path, *options: str, **environment: str) -> None:
    run("cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options, **environment)


def compiler_predefines_a_level(folder: Path) -> None:
    configure(folder, "-DSNIB_TESTS=OFF", "-DSNIB_WERROR=ON", CFLAGS="-O1 -D_FORTIFY_SOURCE=3")
    run("ninja", "-C", str(folder), "CMakeFiles/snib_objects.dir/core/net/words.c.o")


def has_its_own(folder: Path, *options: str) -> bool:
    configure(folder, "-DSKBUILD=ON", f"-DPython_EXECUTABLE={sys.executable}", *options)
    return OWN in (folder / "build.ninja").read_text()


def static_openssl_needs_more(folder: Path) -> None:
    archive = run("cc", "-print-file-name=libcrypto.a").strip()
    if not has_its_own(folder / "whole"):
        raise SystemExit("a wheel has no OpenSSL of its own, although its archives are whole")
    run("objcopy", "--redefine-sym", f"{NEEDED}={NEEDED}_of_another_library", archive, str(folder / "libcrypto.a"))
    if has_its_own(folder / "partial", f"-DSNIB_CRYPTO_STATIC={folder}/libcrypto.a"):
        raise SystemExit("a wheel is linked with an OpenSSL that lacks something: it would not load")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="snib-other-") as temporary:
        compiler_predefines_a_level(Path(temporary) / "level")
        static_openssl_needs_more(Path(temporary))
    print("other systems: a compiler that predefines _FORTIFY_SOURCE, a static OpenSSL that needs more")


if __name__ == "__main__":
    main()
