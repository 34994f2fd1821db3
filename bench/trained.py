"""What a run of `skein train` has measured, for benchmarks that train jobs of their own."""
import datetime
import glob
import json
import os
import subprocess
import sys


def end_of(line):
    """When the step of a line of metrics.jsonl has ended, in seconds since 1970."""
    return datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()


def metrics_of(skein, job, words, folder):
    """The lines of metrics.jsonl of the job, a text, with these keys; its runs go to the folder. Exits if it fails."""
    file_name = os.path.join(folder, "job.toml")
    with open(file_name, "w", encoding="utf-8") as file:
        file.write(job)
    command = [os.path.abspath(skein), "train", file_name]
    command += [word for name, value in {"job.dump_folder": folder, **words}.items()
                for word in ("--" + name, str(value))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{run.stderr}")
    with open(glob.glob(os.path.join(folder, "*-*", "metrics.jsonl"))[0], encoding="utf-8") as file:
        return [json.loads(line) for line in file]
