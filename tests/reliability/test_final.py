"""tests/support/final.py and `check` of ./dev: what no stall explains is not forgiven because of one, and all else is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import final  # noqa: E402

WHERE = {  # lines as they are printed, and where: with the constant part of what prints them
    "REFUSED /tmp/a mutex0 mutex: not linearizable": ("histories/judge/main.go", '"REFUSED %s %s %s: '),
    "sentinel in w1: REFUSED /tmp/a mutex0 mutex: c0-1 was released twice": ("soak/worlds.py", " in {folder.name}: {text}"),
    "sim: seed 7 at 0.100000 s: two holders; replay: sim --mutexes --trace 7": ("sim/sim.c", '"; replay: sim %s--trace '),
    "sim_topo: cluster, seed 7 at 0.1 s: x; replay: sim_topo --focused --trace 7": ("sim/topo_sim.c", "; replay: sim_topo "),
    "sim_walk: seed 7 at 0.100000 s: x; replay: sim_walk --trace 7": ("sim/walk.c", "; replay: sim_walk --trace "),
    "sim_group: seed 7, at 0.100 ms: x; replay with: sim_group --trace 7": ("sim/group_sim.c", "; replay with: sim_group "),
    "sim_stories: two holders, at 0.100 s: x": ("sim/stories.c", '"sim_stories: %s, at %.3f s: '),
    "sim: seed 7 does not leave the same trace twice": ("sim/sim.c", '"sim: seed %llu does not leave the same trace twice'),
    "replay: sim_driver blocks 7": ("driver/world.c", '"replay: sim_driver %s '),
    "fuzz: broken: a < b (core.c:3)": ("fuzz/fuzz.h", '"fuzz: broken: %s '),
    "FAILED: core: fuzz: broken: a < b (core.c:3); all of it is in x": ("fuzz/run.py", 'f"FAILED: {self.target}: {what[1] if'),
    "FAILED: core: SUMMARY: AddressSanitizer: heap-use-after-free core.c:3; all of it is in x": ("fuzz/run.py", "SUMMARY: .*"),
    "FAILED: core: ==7== ERROR: libFuzzer: out-of-memory (used: 1600Mb); all of it is in x": ("fuzz/run.py", "ERROR: .*"),
    "FAILED: core: the planted mistake was missed: no end": ("fuzz/run.py", ": the planted mistake was missed: "),
    "MISSED    core: no end": ("fuzz/run.py", "'MISSED'}    {mistake.by}: "),
    "MISSED  the lease is counted from the reply     0.1 s  sim: all in order": ("sim/mutants.py", "'MISSED' if verdict.good"),
    "replay hold: difference, line 12: state": ("models/replay.c", '"difference"'),
    "    traces of MUTANT_A: no trace differs from what the core does": ("models/run.py", '"no trace differs from what'),
}

PROGRAM = " 3/40 Test #12: live/threads ....................***Failed    1.07 sec"
CRASHED = [
    " 4/40 Test #13: live/queue ....................Subprocess aborted***Exception:   0.05 sec",
    " 4/40 Test #13: sim ....................***Exception: SegFault  0.03 sec",
]
REPORTS = [
    "[  ERROR   ] --- Test failed with exception: Segmentation fault(11)",
    "double free or corruption (fasttop)",
    "free(): double free detected in tcache 2",
    "malloc(): corrupted top size",
    "corrupted size vs. prev_size",
    "*** stack smashing detected ***: terminated",
    "WARNING: ThreadSanitizer: data race (pid=7)",
    "WARNING: DATA RACE",
    "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1",
    "==7==ERROR: LeakSanitizer: detected memory leaks",
    "/src/core/a.c:3:5: runtime error: signed integer overflow",
]
FORGIVEN = [
    "[  ERROR   ] --- 0x1 != 0",
    "[   LINE   ] --- /src/tests/live/threads.c:12: error: Failure!",
    "/src/tests/live/threads.c:12: error: Failure!",
    "[  FAILED  ] renewed_holds",
    "FAILED tests/python/test_end.py::test_a - AssertionError: 1",
    "tests/python/test_end.py:12: AssertionError",
    "    a_test.go:12: the hold was lost",
    "panic: runtime error: index out of range [3]",
    "[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x53047c]",  # of such a panic
    "SIGQUIT: quit",  # of a test that takes too long
    "worker 'gw0' crashed while running 'test_end.py::test_a'",  # the same
    "[gw0] node down: Not properly terminated",
    "fatal error: newosproc",
    " 4/40 Test #13: live/queue ....................***Timeout 900.00 sec",
    " 4/40 Test #13: faults/exit ....................SIGALRM***Exception:   1.00 sec",
    " 4/40 Test #13: live/queue ....................Subprocess killed***Exception:   0.01 sec",
    "--- FAIL: TestA (0.10s)",
    "replay: nothing was recorded",
    "model_check: replay with --seed 7",
    "limited: killed after 4200 s",
    "==7==LeakSanitizer has encountered a fatal error.",
    "FAILED: core: ==7== ERROR: libFuzzer: timeout after 301 seconds; all of it is in x",
    "FAILED: core: SUMMARY: libFuzzer: timeout; all of it is in x",
    "REFUSED /tmp/a mutex0 mutex: undecided after 10m0s",
    "mutex   10 histories, 9 operations (c 9); lost 1 (gone 1); judged: places 0; REFUSED 2 (12 s)",
    "mutex: not refused, set 1 of the control split",
    "MISSED  the end is told late                                 0.1 s  1 SKIPPED TEST(S)",
    "caught  the lease is counted from the reply                  0.1 s  seed 7",
    "pip: connection reset",
]


@pytest.mark.parametrize("line", WHERE)
def test_what_is_final(line: str) -> None:
    path, constant = WHERE[line]
    assert constant in (ROOT / "tests" / path).read_text()
    assert line.strip() in (final.first(["some words\n", line + "\n", "more words\n"]) or "")


def test_what_is_forgiven() -> None:
    assert [line for line in FORGIVEN if final.first([line])] == []


@pytest.mark.parametrize("report", REPORTS)
def test_reports(report: str) -> None:
    """Behind a failed case they are its consequences, but not those of the next program."""
    assert final.first([PROGRAM, report, "[  FAILED  ] a"])
    assert final.first([PROGRAM, "[  FAILED  ] a", report]) is None
    assert final.first([PROGRAM, "[  FAILED  ] a", PROGRAM, report])


@pytest.mark.parametrize("crashed", CRASHED)
def test_crashed_programs(crashed: str) -> None:
    """What ctest says of a program comes before its output."""
    assert final.first([crashed])
    assert final.first([crashed, "[       OK ] a", PROGRAM, "[  FAILED  ] a"])
    assert final.first([crashed, "[  FAILED  ] a"]) is None
    assert final.first([crashed, "[  FAILED  ] a", PROGRAM]) is None


CASES = {  # what a case of cmocka does, and what shows it if there is no ctest
    "*(volatile int *)NULL = 1;": "Test failed with exception",
    "abort();": "",
    "void *volatile p = malloc(1); free(p); free(p);": "free(): ",
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("failed", [False, True])
def test_real_crashes(tmp_path: Path, case: str, failed: bool) -> None:
    """Of a program of cmocka, by itself and by ctest; also behind a case that has failed."""
    heads = ("stdarg.h", "stddef.h", "stdint.h", "setjmp.h", "cmocka.h", "stdlib.h")
    source = "".join(f"#include <{head}>\n" for head in heads) + f"static void a(void **state) {{ (void)state; {case} }}\n"
    source += "static void f(void **state) { (void)state; fail(); }\n"
    tests = "cmocka_unit_test(f), cmocka_unit_test(a)" if failed else "cmocka_unit_test(a)"
    source += f"int main(void) {{ const struct CMUnitTest t[] = {{{tests}}}; return cmocka_run_group_tests(t, NULL, NULL); }}\n"
    (tmp_path / "one.c").write_text(source)
    subprocess.run(["gcc", "-w", "-o", "one", "one.c", "-lcmocka"], cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "one"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = final.first(ran.stdout.splitlines())
    if failed or not CASES[case]:
        assert found is None, ran.stdout
    else:
        assert CASES[case] in (found or ""), ran.stdout
    (tmp_path / "CTestTestfile.cmake").write_text(f'add_test(live/one "{tmp_path}/one")\n')
    ran = subprocess.run(["ctest", "--output-on-failure"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert ran.returncode != 0
    assert bool(final.first(ran.stdout.splitlines())) != failed, ran.stdout


@pytest.mark.parametrize(("words", "shown"), [
    ([sys.executable, "-X", "faulthandler", "-c", "import ctypes; ctypes.string_at(0)"], "Fatal Python error: Segmentation fault"),
    ([sys.executable, "-X", "faulthandler", "-c", "import os; os.abort()"], "Fatal Python error: Aborted"),
    (["bash", "-c", "sh -c 'kill -SEGV $$'; exit 1"], "Segmentation fault"),
])
def test_other_real_crashes(words: list[str], shown: str) -> None:
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode != 0
    assert shown in (final.first(ran.stderr.splitlines()) or ""), ran.stderr


GO = {  # the body of a test, and what shows its end
    "m := map[int]int{}; for range 8 { go func() { for { m[1]++ } }() }; select {}": "fatal error: concurrent map writes",
    "fail()": "SIGSEGV: segmentation violation",
    "var p *int; *p = 1": "",
}


@pytest.mark.parametrize("body", GO)
def test_real_crashes_of_go(tmp_path: Path, body: str) -> None:
    (tmp_path / "go.mod").write_text("module one\n\ngo 1.24\n")
    (tmp_path / "one.go").write_text("package one\n\n// static void crash(void) { *(volatile int *)0 = 1; }\n"
                                     'import "C"\n\nfunc fail() { C.crash() }\n')
    (tmp_path / "one_test.go").write_text(f'package one\n\nimport "testing"\n\nfunc TestA(t *testing.T) {{ {body} }}\n')
    ran = subprocess.run(["go", "test", "."], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "FAIL" in ran.stdout
    found = final.first(ran.stdout.splitlines()) or ""
    assert GO[body] in found and bool(found) == bool(GO[body]), ran.stdout


BROKEN = {
    "address": "char *p = malloc(1); free(p); return *(volatile char *)p;",
    "undefined": "volatile int a = 2147483647; return a + argc == 0;",
    "thread": "pthread_t t; pthread_create(&t, 0, run, 0); shared++; pthread_join(t, 0);",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_real_reports(tmp_path: Path, kind: str) -> None:
    """Of sanitizers, with the options of our builds; and of the compiler itself."""
    source = tmp_path / "one.c"
    head = "#include <pthread.h>\n#include <stdlib.h>\nstatic int shared;\nvoid *run(void *p) { shared++; return p; }\n"
    source.write_text(f"{head}int main(int argc, char **argv)\n{{\n    (void)argv; (void)argc;\n    {BROKEN[kind]}\n}}\n")
    options = [f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-pthread", "-g1", "-o", str(tmp_path / "one")]
    subprocess.run(["gcc", *options, str(source)], check=True)
    ran = subprocess.run([tmp_path / "one"], capture_output=True, text=True)
    if "unexpected memory mapping" in ran.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel")
    assert ran.returncode != 0
    assert "sanitizer" in (final.first(ran.stderr.splitlines()) or ""), ran.stderr
    source.write_text(head + "int main(void) { return unknown; }\n")
    ran = subprocess.run(["gcc", *options, str(source)], capture_output=True, text=True)
    assert "compiler" in (final.first(ran.stderr.splitlines()) or ""), ran.stderr
    source.write_text(head + "int unknown(void);\nint main(void) { return unknown(); }\n")
    ran = subprocess.run(["gcc", *options, str(source)], capture_output=True, text=True)
    assert "compiler" in (final.first(ran.stderr.splitlines()) or ""), ran.stderr


@pytest.mark.parametrize(("line", "stalled", "file"), [
    ("[  FAILED  ] renewed_holds", True, "again"),
    ("[  FAILED  ] renewed_holds", False, "failed"),
    ("sim: seed 7 at 0.1 s: x; replay: sim --trace 7", True, "failed"),
])
def test_check_of_dev(tmp_path: Path, line: str, stalled: bool, file: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "stalls").write_text(f"{time.time() + 1000:.0f} 70\n" if stalled else "")
    command = ["./dev", "_run", "check", "one", "sh", "-c", f"echo '{line}'; exit 1"]
    environment = {key: value for key, value in os.environ.items() if key not in ("ONLY", "AGAIN")}
    environment |= {"SNIB_BUILD": str(tmp_path), "LIMIT": "600"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    assert [path for path in ("again", "failed") if (logs / path).exists()] == [file]
    if file == "failed":  # where ./dev looks for the log
        assert Path(re.sub(r".*, see ", "", (logs / file).read_text().strip())) == logs / "one-.log"
