"""Run the documents' code blocks and docs/examples on private servers.

    python tests/docs/check.py BUILD [DOCUMENT...]

C and Go blocks that are not whole programs are wrapped in one; blocks with tests run as such.  redis://127.0.0.1:6379 and redis://node1:6379 to node3
become private servers.  In shell blocks `./dev X` must be an existing command, and installing commands are not run.
Links must lead to a file and a heading, and no text may show a password among the arguments of snib.  The rights that
`snib acl` prints are tried out in rights.py, and README's installation in install.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import rights

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ("127.0.0.1", "node1", "node2", "node3")
NOT_RUN = ("cmake", "sudo", "pip", "go mod", "cc")
LIMIT = 300.0
# What users read, and copy from.
TEXTS = ("README.md", "docs/**/*", "core/cli/*", "core/include/*", "go/**/*.go", "go/*.h", "python/**/*.py", "bindings/*")
IN_ARGUMENTS = re.compile(r"""--url[= ]+["']?[a-z+]+://[^\s/@]*:[^\s@]*@""")

C_FRAME = """\
#include <poll.h>
#include <snib.h>
#include <stdio.h>
int main(void)
{
    snib_client *client;
    snib_lock *lock;
    snib_hold *hold = NULL;
    snib_error err;
    (void)hold, (void)err;
    if (snib_client_open("%s", NULL, &client, NULL) != SNIB_OK ||
        snib_lock_new(client, SNIB_MUTEX, "guide", 5, NULL, &lock, NULL) != SNIB_OK)
        return 1;
    {
%s
    }
    snib_lock_free(lock);
    snib_client_free(client);
    return 0;
}
"""

GO_FRAME = """\
package main
import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/fencing"
)
var _, _, _, _ = errors.Is, log.Print, time.Second, fencing.ErrStale
var _, _, _ = os.Getpid, signal.Stop, syscall.SIGTERM
func work(ctx context.Context) error { return ctx.Err() }
func main() {
	ctx := context.Background()
	client, err := snib.Open(ctx, "%s")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	func() {
%s
	}()
}
"""

GO_MOD = """\
module example
go 1.24
require github.com/snib-lock/snib/go v0.0.0
replace github.com/snib-lock/snib/go => %s
"""


def run(command: list[str], **more: object) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL, **more
    )  # type: ignore[call-overload]
    if done.returncode != 0:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )


class Checker:
    def __init__(self, build: Path, folder: Path) -> None:
        self.build, self.folder = build, folder
        self.urls = {f"redis://{name}:6379": f"unix://{folder}/{name}" for name in SERVERS}
        self.url = self.urls[f"redis://{SERVERS[0]}:6379"]
        self.counts: dict[str, int] = {}

    def c(self, code: str) -> None:
        source = self.folder / "block.c"
        source.write_text(code if "int main" in code else C_FRAME % (self.url, code))
        run([self.compiled(source)])

    def compiled(self, source: Path, *packages: str) -> str:
        program = str(self.folder / source.stem)
        kit = [f"-L{self.build}/core", "-lsnib-testing", f"-Wl,-rpath,{self.build}/core"]
        if "snib_testing.h" not in source.read_text():
            kit = []
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-DSNIB_STATIC", f"-I{ROOT}/core/include"]
        libraries = [f"{self.build}/core/libsnib.a", "-lhiredis", "-luuid", "-lssl", "-lcrypto", "-pthread", *kit]
        if packages:
            asked = ["pkg-config", "--cflags", "--libs", *packages]
            libraries += subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
        run(["gcc", *flags, str(source), "-o", program, *libraries])
        return program

    def python(self, code: str) -> None:
        if "def test_" in code:
            test = self.folder / "test_block.py"
            test.write_text(code)
            run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)], cwd=self.folder)
            return
        run([sys.executable, "-c", f"import snib\nclient = snib.connect({self.url!r})\n{code}"])

    def go(self, code: str) -> None:
        module = self.folder / "go"
        module.mkdir(exist_ok=True)
        (module / "go.mod").write_text(GO_MOD % (ROOT / "go"))
        if "func Test" in code:
            tests = self.folder / "go_test"
            tests.mkdir(exist_ok=True)
            (tests / "go.mod").write_text(GO_MOD % (ROOT / "go"))
            (tests / "block_test.go").write_text(code)
            run(["go", "vet", "."], cwd=tests)
            run(["go", "test", "."], cwd=tests)
            return
        (module / "main.go").write_text(
            code if "package main" in code else GO_FRAME % (self.url, code)
        )
        run(["go", "vet", "."], cwd=module)
        run(["go", "run", "."], cwd=module)

    def sh(self, code: str) -> None:
        for command in re.findall(r"^\./dev (\w+)", code, re.MULTILINE):
            if f"\n{command})" not in (ROOT / "dev").read_text():
                raise SystemExit(f"./dev has no command {command}")
        lines = [line for line in code.splitlines() if not line.startswith(("./dev", *NOT_RUN))]
        path = f"{self.build / 'core'}:{os.environ['PATH']}"
        run(["sh", "-ec", "\n".join(lines)], env={**os.environ, "PATH": path, "SNIB_URL": self.url})

    def cmake(self, code: str) -> None:
        """Part of the installation."""

    def ini(self, code: str) -> None:
        """A systemd unit: snib knows the options, and comments are on separate lines."""
        known = subprocess.run(
            [self.build / "core" / "snib", "--help"], capture_output=True, text=True, check=True
        ).stdout
        for option in re.findall(r"(?<![\w-])--[a-z-]+", code):
            if option not in known:
                raise SystemExit(f"snib has no option {option}")
        if re.search(r"^RestartPreventExitStatus=.*12[56]", code, re.MULTILINE):
            raise SystemExit("125 and 126 may be a lack of memory that passes, so another start helps")
        for line in code.splitlines():
            if "#" in line and not line.startswith("#"):
                raise SystemExit(f"a comment behind a value: {line}")

    def yaml(self, code: str) -> None:
        """A Kubernetes manifest, which cannot be run here; at least it contains no tabs."""
        if "\t" in code:
            raise SystemExit("a tab in YAML")

    def block(self, language: str, code: str) -> None:
        for shown, real in self.urls.items():
            code = code.replace(shown, real)
        getattr(self, language)(code)
        self.counts[language] = self.counts.get(language, 0) + 1

    def example(self, path: Path) -> None:
        """A whole program, unchanged."""
        environment = {**os.environ, "SNIB_URL": self.url}
        try:
            if path.suffix == ".py":
                run([sys.executable, str(path)], env=environment)
                if f"`{path.name}` needs none" in (path.parent / "README.md").read_text():
                    del environment["SNIB_URL"]
                    run([sys.executable, str(path)], env=environment)
            elif path.suffix == ".go":
                self.go(path.read_text().replace("redis://127.0.0.1:6379", self.url))
            elif path.suffix == ".c":
                words = re.search(r"pkg-config --cflags --libs snib([^)]*)\)", path.read_text())
                assert words, "no word of how to compile it"
                run([self.compiled(path, *words[1].split())], env=environment)
            else:
                return
        except SystemExit as failure:
            raise SystemExit(f"{path.relative_to(ROOT)}: {failure}") from None
        self.counts["examples"] = self.counts.get("examples", 0) + 1

    def document(self, path: Path) -> None:
        text = path.read_text()
        for match in re.finditer(r"^( *)```(\w+)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            try:
                self.block(match[2], textwrap.dedent(match[3]))
            except SystemExit as failure:
                line = text.count("\n", 0, match.start()) + 1
                raise SystemExit(f"{path.relative_to(ROOT)}:{line}: {failure}") from None
        for target in re.findall(r"\]\(([^):]+)\)", text):
            check_link(path, target)


def check_link(path: Path, target: str) -> None:
    name, _, heading = target.partition("#")
    page = path.parent / name if name else path
    if not page.exists():
        raise SystemExit(f"{path.relative_to(ROOT)}: {target} does not exist")
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE) if heading else []
    anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings]
    if heading and heading not in anchors:
        raise SystemExit(f"{path.relative_to(ROOT)}: {target}: there is no such heading")


def check_arguments() -> None:
    """Other users can see the arguments of a process."""
    for path in sorted({path for pattern in TEXTS for path in ROOT.glob(pattern) if path.is_file()}):
        text = path.read_text(errors="replace").replace("\\-", "-")  # as in the manual
        if found := IN_ARGUMENTS.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise SystemExit(f"{path.relative_to(ROOT)}:{line}: a password among the arguments: {found[0]}")


def start_server(program: str, folder: Path, name: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", f"{folder}/{name}", "--save", ""],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while not (folder / name).exists():
        if time.monotonic() > end:
            raise SystemExit("the server does not start")
        time.sleep(0.005)
    return process


def main() -> None:
    build = Path(sys.argv[1]).resolve()
    only = [Path(name).resolve() for name in sys.argv[2:]]
    check_arguments()
    server = os.environ.get("SNIB_TEST_SERVER") or shutil.which("redis-server")
    with tempfile.TemporaryDirectory(prefix="snib-docs-") as temporary:
        folder = Path(temporary)
        processes = []
        try:
            for name in SERVERS:
                processes.append(start_server(str(server), folder, name))
            checker = Checker(build, folder)
            documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
            for path in [path for path in only or documents if path.suffix == ".md"]:
                checker.document(path)
            for path in only or sorted((ROOT / "docs/examples").iterdir()):
                checker.example(path)
            operations = ROOT / "docs/operations.md"
            if not only or operations in only:
                rights.check(folder, list(SERVERS[1:]), build / "core/snib")
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    blocks = ", ".join(f"{count} {language}" for language, count in sorted(checker.counts.items()))
    print(f"code blocks run: {blocks}")


if __name__ == "__main__":
    main()
