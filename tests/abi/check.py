#!/usr/bin/env python3
"""Checks of the interfaces that programs outside this tree rely on.

    check.py header                   snib.h compiles alone in every supported dialect
    check.py exports LIBSNIB.SO LIBSNIB.A
    check.py layout [--update]        sizes, offsets and values match layout.txt
    check.py install BUILD CMAKE      an installed tree can be moved, and programs build against it

Each prints one closing line and exits with 0, or reports what is wrong and exits with 1.
"""
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "core" / "include"
HEADER = INCLUDE / "snib.h"


def run(*command, **options):
    """Run a command that must succeed and return its output."""
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}exit code {done.returncode}")
    return done.stdout


def same(what, want, got):
    """The lists must be equal; a difference is shown as a diff."""
    diff = list(difflib.unified_diff(want, got, "committed", "found", lineterm="", n=0))
    if diff:
        sys.exit(f"{what} changed:\n" + "\n".join(diff))


def header_text():
    """The header without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
    return re.sub(r"^\s*#.*$", "", text, flags=re.M)


def check_header():
    dialects = [("c", "c99"), ("c", "c11"), ("c++", "c++17")]
    compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
    if not compilers:
        sys.exit("neither gcc nor clang is here")
    flags = "-pedantic -Wall -Wextra -Wconversion -Wundef -Werror -fsyntax-only".split()
    # Twice, to check the include guard.
    program = '#include "snib.h"\n' * 2 + "int main(void) { return snib_features() == 0; }\n"
    for compiler in compilers:
        for language, standard in dialects:
            more = ["-Wstrict-prototypes"] if language == "c" else ["-Wold-style-cast"]
            run(compiler, "-x", language, f"-std={standard}", *flags, *more, f"-I{INCLUDE}", "-",
                input=program)
    return f"{' and '.join(compilers)}, {', '.join(standard for _, standard in dialects)}"


def symbols(library, *flags):
    lines = run("nm", *flags, "--defined-only", library).splitlines()
    found = (re.fullmatch(r"[0-9a-f]+ ([A-Z]) (\S+)", line) for line in lines)
    return sorted({m[2].split("@")[0] for m in found if m and m[1] != "A"})


def check_exports(shared, static):
    exported = symbols(shared, "-D")
    declared = sorted(set(re.findall(r"SNIB_API[^;(]*?\b(snib_\w+)\(", header_text())))
    same("the export list", (HERE / "exports.txt").read_text().split(), exported)
    same("header against exports", declared, exported)
    strangers = [name for name in symbols(static, "-g") if not re.match(r"snib_", name)]
    if strangers:
        sys.exit(f"the static library defines names of others: {' '.join(strangers)}")
    return f"{len(exported)} symbols"


def layout_program():
    """A C program that prints every value, size and offset of the header, found by reading it."""
    text = header_text()
    lines = []
    for body in re.findall(r"\benum \w+ \{(.*?)\}", text, flags=re.S):
        for name in re.findall(r"\b(SNIB_\w+)\s*=", body):
            lines.append(f'printf("{name} %d\\n", (int){name});')
    flags = r"^#define (SNIB_(?:IS|FEATURE|HISTOGRAM|LOCK|DURABILITY|PUBLISH)_\w+) "
    for name in re.findall(flags, HEADER.read_text(), flags=re.M):
        lines.append(f'printf("{name} %d\\n", (int){name});')
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field in re.findall(r"(\w+)(?:\[\w+\])?;", body):
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                         f"sizeof((({name} *)0)->{field}));")
    return '#include "snib.h"\n#include <stdio.h>\nint main(void)\n{\n' + "\n".join(lines) + "\n}\n"


def check_layout(update):
    with tempfile.TemporaryDirectory() as folder:
        run("cc", "-x", "c", f"-I{INCLUDE}", "-", "-o", f"{folder}/layout", input=layout_program())
        found = run(f"{folder}/layout").splitlines()
    if update:
        (HERE / "layout.txt").write_text("\n".join(found) + "\n")
    same("the layout", (HERE / "layout.txt").read_text().splitlines(), found)
    return f"{len(found)} values, sizes and offsets"


CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(example C CXX)
find_package(snib 0.1 REQUIRED)
add_executable(example_shared example.c)
target_link_libraries(example_shared snib::shared)
add_executable(example_static example.c)
target_link_libraries(example_static snib::static)
add_executable(example_cxx example.cc)
target_link_libraries(example_cxx snib::static)
find_package(snib 0.2 QUIET)
if(snib_FOUND)
    message(FATAL_ERROR "0.1 passed for 0.2")
endif()
"""


def check_install(build, cmake):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        run(cmake, "--install", build, "--prefix", place / "first")
        root = place / "moved"
        (place / "first").rename(root)
        for file in root.rglob("*"):
            if file.suffix in (".pc", ".cmake", ".h") and folder in file.read_text():
                sys.exit(f"{file.name} names the prefix it was installed in")
        lib = next(root.rglob("libsnib.so")).parent
        soname = run("readelf", "-d", lib / "libsnib.so")
        if "[libsnib.so.0.1]" not in soname or "NODELETE" not in soname or "TEXTREL" in soname:
            sys.exit(f"the dynamic section is not as it should be:\n{soname}")
        environment = {**os.environ, "PKG_CONFIG_PATH": str(lib / "pkgconfig"),
                       "LD_LIBRARY_PATH": str(lib), "SNIB_URL": f"unix://{folder}/nobody"}
        env = {"env": environment, "cwd": folder}
        shutil.copy(HERE / "example.c", place)
        # example.c must be a C++ program too.
        shutil.copy(HERE / "example.c", place / "example.cc")

        run("sh", "-c", "cc example.c $(pkg-config --cflags --libs snib) -o by_pkg_config", **env)
        run("sh", "-c", f"cc -DSNIB_STATIC example.c $(pkg-config --cflags snib) {lib}/libsnib.a "
            "$(pkg-config --static --libs-only-l snib | sed s/-lsnib//) -o by_static", **env)
        (place / "CMakeLists.txt").write_text(CMAKE_PROJECT)
        run(cmake, "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={root}", **env)
        run(cmake, "--build", "out", **env)
        programs = ["./by_pkg_config", "./by_static", "out/example_shared", "out/example_static",
                    "out/example_cxx"]
        for program in programs:
            # There is no server: the program must report that, which shows that the library works.
            done = subprocess.run([program], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, **env)
            if done.returncode != 1 or "SNIB_ECONNECT" not in done.stdout:
                sys.exit(f"{program}: exit code {done.returncode}\n{done.stdout}")
        command = root / "bin" / "snib"
        if command.exists():
            plain = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
            run(command, "--version", env=plain)
    return f"{len(programs)} programs"


def main():
    checks = {"header": check_header, "exports": check_exports, "install": check_install,
              "layout": lambda *more: check_layout("--update" in more)}
    if len(sys.argv) < 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    print(f"abi {sys.argv[1]}: {checks[sys.argv[1]](*sys.argv[2:])}")


if __name__ == "__main__":
    main()
