#!/usr/bin/env python3
"""core/lua/embed.cmake against an independent reading of the scripts.

    embed.py CMAKE        checks core/lua and a folder of hostile scripts

The header's content is found by compiling it.  Prints one closing line.
"""
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

LUA = pathlib.Path(__file__).resolve().parents[2] / "core" / "lua"

# Everything that CMake or C could stumble over.
HOSTILE = {
    "b_second": "-- a comment; [with\n\n\treturn 'a;b' .. \"c\\\"d\\\\\" -- kept [ ] ;;\n  --dropped\n",
    "a_first": "return '${OUT} @OUT@ $ENV{HOME} %d \\n \\065'",  # no newline at the end
    "c_third": "\n\n--\n\nlocal t = { [1] = ']' }\n\n\n  return t[1] .. '\u00e4'\n\n-- end",
    "_shared": "-- Not a script by itself.\nlocal a = ';' -- [kept]\n\nlocal b = '\\n'",
    "d_with": "-- with _shared.lua\n-- More.\nreturn a .. b\n",
    "e_twice": "-- with _shared.lua\nreturn b .. a",
    "f_later": "return 1\n-- with _shared.lua\n",  # only the first line counts
}

DUMP = """
#include "scripts.h"
#include <stdio.h>
int main(void)
{
    for (int i = 0; i < SNIB__SCRIPT_COUNT; i++) {
        printf("%s %s %u\\n", snib__script_texts[i].name, snib__script_texts[i].sha1,
               snib__script_texts[i].length);
        fwrite(snib__script_texts[i].text, 1, snib__script_texts[i].length, stdout);
    }
    return 0;
}
"""


def embed(cmake, folder, out):
    return subprocess.run([cmake, f"-DDIR={folder}", f"-DOUT={out}/scripts.h", "-P",
                           LUA / "embed.cmake"], stderr=subprocess.PIPE, text=True)


def check(cmake, folder, place):
    done = embed(cmake, folder, place)
    assert done.returncode == 0, done.stderr
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Wno-overlength-strings",
                    "-Werror", "-x", "c",
                    f"-I{place}", "-", "-o", f"{place}/dump"], input=DUMP, text=True, check=True)
    found = subprocess.run([f"{place}/dump"], stdout=subprocess.PIPE, check=True).stdout
    want = b""
    files = sorted(file for file in pathlib.Path(folder).glob("*.lua") if file.name[0] != "_")
    for file in files:
        lines = file.read_text().split("\n")
        shared = re.fullmatch(r"-- with (_\w+\.lua)", lines[0])
        if shared:
            lines = (file.parent / shared[1]).read_text().split("\n") + lines
        text = "".join(line + "\n" for line in lines if not re.fullmatch(r"[ \t]*(--.*)?", line))
        text = text.encode()
        sha1 = hashlib.sha1(text).hexdigest()
        want += f"{file.stem} {sha1} {len(text)}\n".encode() + text
    assert found == want, f"{folder}: found {found!r}, want {want!r}"
    header = (pathlib.Path(place) / "scripts.h").read_text()
    names = re.findall(r"SNIB__SCRIPT_(\w+),", header)
    assert names == [file.stem.upper() for file in files], names
    return len(files)


def main(cmake):
    with tempfile.TemporaryDirectory() as place:
        count = check(cmake, LUA, place)
        hostile = pathlib.Path(place) / "hostile"
        hostile.mkdir()
        for name, text in HOSTILE.items():
            (hostile / f"{name}.lua").write_text(text)
        count += check(cmake, hostile, place)
        (hostile / "g_long.lua").write_text("return [[\n-- not a comment\n]]\n")
        assert embed(cmake, hostile, place).returncode != 0, "a long bracket passed"
        (hostile / "g_long.lua").write_text("-- with _missing.lua\nreturn 1\n")
        assert embed(cmake, hostile, place).returncode != 0, "a missing shared text passed"
    print(f"embed: {count} scripts")


if __name__ == "__main__":
    main(sys.argv[1])
