"""Runs the skein program for tests."""
import glob
import os
import subprocess
import sys
import tempfile
import threading

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Whether to run the long form of a suite that has one: tests/run.sh --long.
LONG = os.environ.get("SKEIN_TEST_LONG") == "1"
PYTHON_PACKAGES = os.path.join(SOURCE, "build", "python")
# A Python with Hugging Face's tokenizers; None if cmake/install-python-packages.sh has not got them.
TOKENIZERS_PYTHON = (os.path.join(PYTHON_PACKAGES, "bin", "python") if
                     glob.glob(os.path.join(PYTHON_PACKAGES, "lib", "python3*", "site-packages", "tokenizers"))
                     else None)
SMALL_JOB = os.path.join(SOURCE, "tests", "support", "small_job.toml")


class Program:
    """The built programs, given on the command line of the test, and a folder of its own."""

    def __init__(self):
        self.skein = os.path.abspath(sys.argv[1])
        self.reference = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
        self.temporary = tempfile.TemporaryDirectory(prefix="skein-test-")
        self.folder = self.temporary.name
        self.failures = 0
        self.telling = threading.Lock()

    def run(self, *words, timeout=120, where=None, **options):
        """Runs skein in the folder `where`, else in the program's own."""
        try:
            return subprocess.run([self.skein, *words], timeout=timeout, cwd=where or self.folder,
                                  text=True, capture_output=True, check=False, **options)
        except subprocess.TimeoutExpired as late:
            for name, text in (("stdout", late.stdout), ("stderr", late.stderr)):
                print(f"its {name} until then:\n{(text or b'')[-4000:].decode(errors='replace')}")
            raise

    def train(self, dump, *words, job=SMALL_JOB, **options):
        """Trains into the folder `dump` and returns the finished process and the run's folder."""
        result = self.run("train", job, "--job.dump_folder", dump, *words, **options)
        runs = sorted(glob.glob(os.path.join(self.folder, dump, "*-*")), key=os.path.getmtime)
        return result, (runs[-1] if runs else None)

    def run_reference(self, out, *words, job=SMALL_JOB):
        subprocess.run([self.reference, job, os.path.join(self.folder, out), *words], check=True,
                       timeout=120, cwd=self.folder)
        return os.path.join(self.folder, out)

    def expect_refusal(self, claim, code, words, result):
        """One line on the standard error, with these words, and that exit code."""
        lines = result.stderr.strip().splitlines()
        self.expect(claim, result.returncode == code and len(lines) == 1 and
                    all(word in lines[0] for word in words), result.stderr.strip())

    def write(self, name, text):
        """A file in the test's folder, and the folders that it is in."""
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def expect(self, claim, holds, detail=""):
        with self.telling:
            print(f"{'ok  ' if holds else 'FAIL'}  {claim}" + (f"  ({detail})" if detail else ""),
                  flush=True)
            if not holds:
                self.failures += 1

    def finish(self):
        self.temporary.cleanup()
        print("overall okay" if self.failures == 0 else f"{self.failures} claims do not hold")
        sys.exit(0 if self.failures == 0 else 1)
