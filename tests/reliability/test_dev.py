"""./dev: the checks of `./dev test` leave no C test out; wrong arguments are told; its surroundings change nothing."""

from __future__ import annotations

import functools
import json
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SANITIZED = {"asan": "address,undefined", "tsan": "thread"}
# The calls of `check` that the checks of a short run make, when $DRAWN is drawn where it can be.
CALLS = r"""
drawn() { for word in "$@"; do if [ "$word" = "$DRAWN" ]; then say "$word"; return; fi; done; say "$1"; }
label() { say "$1"; }
check() { printf '%s\t' "$@"; echo; }
SEEDS=1 SEEDS_SANITIZED=1
for each in "${CHECKS[@]}"; do "$each"; done
"""


def dev(*words: str, **environment: str) -> str:
    command = ["env", "-u", "SNIB_TEST_ALL", *(f"{name}={value}" for name, value in environment.items()), "./dev", "_run", *words]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the builds, which are only configured."""
    build: Path = tmp_path_factory.mktemp("build")
    dev("configure", "core", "-DSNIB_BENCH=ON", SNIB_BUILD=str(build))
    for folder, sanitizers in SANITIZED.items():
        dev("configure", folder, f"-DSNIB_SANITIZE={sanitizers}", "-DSNIB_CLI=OFF", SNIB_BUILD=str(build))
    return build


@functools.cache
def c_tests_of(folder: Path) -> set[str]:
    listed = subprocess.check_output(["ctest", "--test-dir", folder, "--show-only=json-v1"], text=True)
    return {test["name"] for test in json.loads(listed)["tests"]}


def selected(build: Path, drawn: str) -> set[str]:
    """The tests that a short run runs in one of the builds."""
    found = set()
    for call in dev("eval", CALLS, DRAWN=drawn).splitlines():
        _, what, *words = call.rstrip("\t").split("\t")
        if what == "conformance":  # compares the languages, with C among them
            found |= {"conformance", "conformance/memory"}
        if what in ("c_tests", "sanitized"):
            folder, which, but = [*words[what == "sanitized" :], "^$"][:3]
            found |= {name for name in c_tests_of(build / folder) if re.search(which, name) and not re.search(but, name)}
    return found


@pytest.mark.parametrize("drawn", ["address", "thread"])
def test_no_c_test_is_left_out(build: Path, drawn: str) -> None:
    assert {"sim/driver", "live/memory"} <= c_tests_of(build / "core")
    assert set().union(*(c_tests_of(build / folder) for folder in ("core", *SANITIZED))) - selected(build, drawn) == set()


def test_the_limit_of_simulators_is_that_of_dev(build: Path) -> None:
    """How long they take depends on the number of seeds, which `./dev test --all` makes fifty times as large: a limit of
    ctest's own, of which there is one without a word, too, would end them before."""
    most = max(int(limit) for limit in re.findall(r"\bLIMIT=(\d+)", (ROOT / "dev").read_text()))
    for folder in ("core", *SANITIZED):
        listed = subprocess.check_output(["ctest", "--test-dir", build / folder, "--show-only=json-v1"], text=True)
        limits = {
            test["name"]: {each["name"]: each["value"] for each in test.get("properties", [])}.get("TIMEOUT", 1500)
            for test in json.loads(listed)["tests"]
            if test["name"].startswith("sim")
        }
        assert folder == "tsan" or {"sim", "sim/driver", "sim/walk"} <= set(limits)  # it runs none of them
        assert {name: limit for name, limit in limits.items() if limit < most} == {}


def test_language_of_the_user() -> None:
    """Where numbers have a comma `check` could not print its line, and messages of compilers would be others."""
    told = dev("env", LC_ALL="de_DE.UTF-8", LC_NUMERIC="de_DE.UTF-8", LANGUAGE="de").splitlines()
    assert {"LC_ALL=C.UTF-8", "LANGUAGE="} <= set(told)


def test_through_a_symlink(tmp_path: Path) -> None:
    """What is compared with paths in a build would fit none."""
    (tmp_path / "link").symlink_to(ROOT)
    said = subprocess.check_output([tmp_path / "link/dev", "_run", "eval", 'echo "$ROOT $PWD"'], text=True)
    assert said.split() == [str(ROOT)] * 2


def test_without_a_home() -> None:
    command = ["env", "-u", "HOME", "./dev", "_run", "eval", 'echo "$HOME" && all_pythons']
    home = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()[0]
    assert home == pwd.getpwuid(os.getuid()).pw_dir


def bare(build: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Where nothing is found that installs or builds, should it want to; a build folder of its own."""
    (build / "bin").mkdir()
    for name in ("bash", "dirname", "sed", "env", "python3", "grep"):
        (build / "bin" / name).symlink_to(str(shutil.which(name)))
    environment = {"SNIB_BUILD": str(build / "build"), "HOME": str(build), "PATH": str(build / "bin")}
    done = subprocess.run(["/bin/bash", "./dev", *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert not [*build.glob("build/[!p]*")], done.stdout + done.stderr  # but pycache
    return done


@pytest.mark.parametrize(("words", "said"), [
    ("test --al", "dev: test takes --all, and no --al"),
    ("test --help", "dev: test takes --all, and no --help"),
    ("test --all more", "dev: test takes --all, and no --all more"),
    ("test (", "dev: ( is no regular expression"),
    ("soak --hour twelve", "argument --hours: invalid float value"),
    ("soak --hours 1 more", "unrecognized arguments: more"),
    ("soak --worlds single:latch", "argument --worlds: no world 'single:latch'"),
    ("soak --languages c,rust", "argument --languages: no language 'rust'"),
    ("lint --fi", "dev: lint takes --fix, and no --fi"),
    ("build --help", "dev: build takes no --help"),
    ("clean core", "dev: clean takes no core"),
    ("tests", "dev: there is no command tests"),
])
def test_wrong_arguments(tmp_path: Path, words: str, said: str) -> None:
    done = bare(tmp_path, *words.split())
    assert done.returncode in (1, 2) and said in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("words", [[], ["help"], ["-h"], ["--help"], ["soak", "--help"]])
def test_help(tmp_path: Path, words: list[str]) -> None:
    done = bare(tmp_path, *words)
    assert done.returncode == 0 and "hours" in done.stdout and not done.stderr


# All that a run does but its checks, of which there is one.
ONE = """
setup() { :; }; apt_need() { :; }; quiet() { :; }; setup_for_tests() { :; }; fetch_for_tests() { :; }
check_one() { check one echo well; }; CHECKS=(check_one)
mkdir -p "$BUILD/logs"; test_all "$@"
"""


@pytest.mark.parametrize(("name", "code", "said"), [
    ("one", 0, "all checks passed"),
    ("^o", 0, "all checks passed"),
    ("two", 1, "dev: no check is called two"),
])
def test_name_of_a_check(tmp_path: Path, name: str, code: int, said: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("ONLY", "AGAIN", "SNIB_TEST_ALL")}
    command = ["./dev", "_run", "eval", f"set -- '{name}'; {ONE}"]
    environment["SNIB_BUILD"] = str(tmp_path)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == code and said in done.stdout + done.stderr, done.stdout + done.stderr
