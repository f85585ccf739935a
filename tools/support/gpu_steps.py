"""For tools/gpu_check: the steps that it takes, and what each of them amounts to."""

import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

PASSED, FAILED, ABSENT, LATE = "passed", "FAILED", "could not run", "OUT OF TIME"
SKIPPED_STATUS = 77  # of our tests, where there is no device
NOT_STARTED = 126  # as a shell has it
NO_CUDA = "the CUDA runtime sees no device"
OPS = "tensor_cuda_parity_test_gpu"
TRAINING = "engine_device_parity_test_gpu"
# Of each small operation one aligned form in 16 bits and one in f32 that is not.
SANITIZED = "Small/*_bf16_f32_0:Small/*_f32_f32_3"


class Outcome(NamedTuple):
    result: str
    note: str


class Finished(NamedTuple):
    status: int | None  # None: it ran out of time
    output: str


class Machine:
    """Runs programs of the folder `root`, each within what is left of the time, and keeps what they
    said in `logs`."""

    def __init__(self, root, logs, python, seconds):
        self.root, self.logs, self.python = root, logs, python
        self.end = time.monotonic() + seconds
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1")
        # Ranks that may share a device do so only where there is one; and without NCCL programs,
        # those under sanitizers above all, start faster when kernels are loaded late.
        self.environment = dict(os.environ, CUDA_VISIBLE_DEVICES=visible.split(",")[0],
                                CUDA_MODULE_LOADING="LAZY")
        self.for_nccl = {"CUDA_VISIBLE_DEVICES": visible,  # the rest: docs/devices.md
                         "CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER",
                         "NCCL_P2P_DIRECT_DISABLE": "1"}
        self.devices = []  # names
        self.unseen = False  # by the CUDA runtime, whatever nvidia-smi says
        self.missing = {}  # by program: libraries that the loader does not find

    def run(self, name, command, budget, settings=None):
        seconds = min(budget, self.end - time.monotonic())
        if seconds <= 0:
            return Finished(None, "")
        log = self.logs / (name.replace(" ", "_").replace(",", "") + ".log")
        with log.open("w+") as output:
            try:
                process = subprocess.Popen([str(word) for word in command], cwd=self.root,
                                           env={**self.environment, **(settings or {})},
                                           stdout=output, stderr=subprocess.STDOUT,
                                           start_new_session=True)
            except OSError as error:  # such as a program that a bundle has but in part
                output.write(f"{command[0]} does not start: {error.strerror}\n")
                output.flush()
                return Finished(NOT_STARTED, log.read_text(errors="replace"))
            try:
                status = process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
        return Finished(status, log.read_text(errors="replace"))

    def tool(self, name, *more_places):
        """Where a program of NVIDIA's is; None: nowhere."""
        found = shutil.which(name, path=self.environment.get("PATH"))
        for place in more_places:
            found = found or next((path for path in sorted(glob.glob(place))), None)
        return found

    def program(self, name):
        return self.root / "bin" / name

    def lacks(self, *programs):
        """Why these programs cannot run here; empty: they can."""
        if not self.devices:
            return "no device"
        if self.unseen:
            return NO_CUDA
        for name in programs:
            if not self.program(name).exists():
                return f"there is no program {name}"
            if self.missing.get(name):
                return f"this machine lacks {', '.join(self.missing[name])}"
        return ""


def last_lines(text, count=12):
    return "\n".join("    " + line for line in text.strip().splitlines()[-count:])


# --- what is there


def look_at_devices(machine):
    smi = machine.tool("nvidia-smi")
    if smi is None:
        return Outcome(ABSENT, "there is no nvidia-smi, so no driver")
    command = [smi, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    finished = machine.run("device", command, 20)
    if finished.status != 0:
        return Outcome(ABSENT, "nvidia-smi sees no device")
    machine.devices = [line.strip() for line in finished.output.splitlines() if line.strip()]
    if not machine.devices:
        return Outcome(ABSENT, "nvidia-smi lists no device")
    return Outcome(PASSED, f"{len(machine.devices)} x {machine.devices[0]}")


def places_of_cuda():
    """Folders that may hold CUDA's libraries: the toolkit's, and those of Python's packages."""
    patterns = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib",
                "/usr/local/nvidia/lib64"]
    patterns += [f"{path}/nvidia/*/lib" for path in sys.path if path]
    patterns += ["/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib"]
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]


def missing_libraries(machine):
    result = {}
    for program in sorted((machine.root / "bin").iterdir()):
        text = subprocess.run(["ldd", str(program)], capture_output=True, text=True,
                              env=machine.environment).stdout
        result[program.name] = re.findall(r"^\s+(\S+) => not found", text, re.M)
    return result


def look_at_libraries(machine):
    machine.missing = missing_libraries(machine)
    wanted = {name for names in machine.missing.values() for name in names}
    added = []
    for folder in places_of_cuda():  # only where the loader's own search was in vain
        here = {name for name in wanted if (pathlib.Path(folder) / name).exists()}
        if here:
            added.append(folder)
            wanted -= here
    if added:
        old = machine.environment.get("LD_LIBRARY_PATH")
        machine.environment["LD_LIBRARY_PATH"] = ":".join(added + ([old] if old else []))
        machine.missing = missing_libraries(machine)
    still = sorted({name for names in machine.missing.values() for name in names})
    if still:
        return Outcome(ABSENT, "missing: " + ", ".join(still))
    return Outcome(PASSED, "all found" + (" in " + ", ".join(added) if added else ""))


# --- tests


def judge_tests(finished):
    """What a GoogleTest program's words and status amount to."""
    ran = len(re.findall(r"^\[       OK \]", finished.output, re.M))
    bad = re.findall(r"^\[  FAILED  \] (\S+?),? .*\(\d+ ms\)$", finished.output, re.M)
    bad += [] if bad else re.findall(r"^\[  FAILED  \] (\S+)$", finished.output, re.M)
    total = re.search(r"^\[==========\] Running (\d+) tests?", finished.output, re.M)
    skips = re.findall(r": Skipped\n(.*)\n", finished.output)
    counts = f"{ran} of {total[1] if total else '?'} tests"
    if finished.status is None:
        return Outcome(LATE, f"after {counts}" + (f", {len(bad)} failed" if bad else ""))
    if finished.status == SKIPPED_STATUS:
        return Outcome(ABSENT, NO_CUDA)
    if total is None:
        said = last_lines(finished.output, 1).strip()
        return Outcome(FAILED, f"no test has run, status {finished.status}: {said}")
    if finished.status != 0:
        first = f", first {bad[0]}" if bad else f", status {finished.status}"
        return Outcome(FAILED, f"{counts} passed{first}")
    if ran == 0:
        return Outcome(ABSENT, skips[0] if skips else "no test has such a name")
    return Outcome(PASSED, counts + (f", {len(skips)} skipped: {skips[0]}" if skips else ""))


def run_tests(machine, name, program, budget, choice=None, settings=None):
    lack = machine.lacks(program)
    if lack:
        return Outcome(ABSENT, lack)
    command = [machine.program(program)] + ([f"--gtest_filter={choice}"] if choice else [])
    finished = machine.run(name, command, budget, settings)
    machine.unseen = finished.status == SKIPPED_STATUS
    return judge_tests(finished)


def sanitize(machine, name, budget, program=OPS, choice=SANITIZED):
    tool, program = name.split()[0], program + "_plain"
    lack = machine.lacks(program)
    if lack:
        return Outcome(ABSENT, lack)
    sanitizer = machine.tool("compute-sanitizer", "/usr/local/cuda*/bin/compute-sanitizer",
                             "/usr/local/cuda*/compute-sanitizer/compute-sanitizer",
                             "/opt/nvidia/*/compute-sanitizer")
    if sanitizer is None:
        return Outcome(ABSENT, "there is no compute-sanitizer on the PATH or beside CUDA")
    finished = machine.run(name, [sanitizer, "--tool", tool, "--error-exitcode", "9",
                                  machine.program(program), f"--gtest_filter={choice}"], budget)
    if re.search(r"[Dd]evice not supported|Unable to find injection library", finished.output):
        return Outcome(ABSENT, "compute-sanitizer does not work on this machine")
    errors = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) ", finished.output)
    count = int(errors[1]) if errors else 0
    outcome = judge_tests(finished)
    if count > 0:
        return Outcome(FAILED, f"{count} found by {tool}; {outcome.note}")
    if outcome.result == PASSED and errors is None:
        return Outcome(FAILED, f"{tool} gave no summary")
    return outcome


# --- the trainer


def losses(folder):
    rows = [line.split(",") for line in (folder / "losses.csv").read_text().splitlines()]
    column = rows[0].index("loss")
    return [float(row[column]) for row in rows[1:]]


TRAIN_STEPS = 10


def train(machine, name, budget):
    """penstock-train on the CPU, and in two stages on one device."""
    lack = machine.lacks("penstock-train")
    if lack:
        return Outcome(ABSENT, lack)
    demo = json.loads((machine.root / "demo.json").read_text())
    found = {}
    for place, device in (("cpu", {}), ("cuda", {"type": "cuda", "sharing": True})):
        run = machine.logs / f"train-{place}"
        shutil.rmtree(run, ignore_errors=True)
        config = machine.logs / f"train-{place}.json"
        config.write_text(json.dumps({**demo, **({"device": device} if device else {})}))
        command = [machine.program("penstock-train"), "--config", config, "--model",
                   "gpt2:layers=4,width=64,heads=4,context=64,vocabulary=256", "--data",
                   machine.root / "README.md", "--run", run, "--ranks", "2", "--steps",
                   str(TRAIN_STEPS)]
        finished = machine.run(f"{name} {place}", command, budget / 2)
        if finished.status is None:
            return Outcome(LATE, f"on {place}")
        if finished.status != 0:
            return Outcome(FAILED, f"on {place}: {last_lines(finished.output, 1).strip()}")
        found[place] = losses(run)
    worst = max(abs(a - b) / abs(a) for a, b in zip(found["cpu"], found["cuda"]))
    note = f"{TRAIN_STEPS} losses, at most {worst:.1e} off the CPU's"
    same = len(found["cpu"]) == len(found["cuda"]) == TRAIN_STEPS
    return Outcome(PASSED if same and worst < 1e-3 else FAILED, note)


# --- speed


def bench(machine, name, budget, *choice):
    lack = machine.lacks("penstock-bench")
    if lack:
        return Outcome(ABSENT, lack)
    command = [machine.program("penstock-bench"), "gpu", "--parts", *choice]
    finished = machine.run(name, command, budget)
    print(finished.output.rstrip() + "\n", flush=True)
    if finished.status is None:
        return Outcome(LATE, "before it had a number")
    if finished.status != 0:
        return Outcome(FAILED, last_lines(finished.output, 1).strip())
    row = re.search(r"^(?:one device|device copy) +(\S+) +\S+ *(\S+ %)?", finished.output, re.M)
    if row is None:
        return Outcome(FAILED, "it printed no table")
    copy = f"device copy: {row[1]} GB/s"
    return Outcome(PASSED, f"{row[1]} tokens/s, {row[2]} of 989 TFLOP/s" if row[2] else copy)


def attention_rates(output):
    """TFLOP/s of forward and backward, by what a table says of attention."""
    return [float(rate) for rate in re.findall(r"attention, (?:for|back)ward +([\d.]+)", output)]


def beside_cudnn(machine, name, budget):
    """Our attention's rates, which an earlier step has measured, beside those of cuDNN's."""
    if machine.lacks():
        return Outcome(ABSENT, machine.lacks())
    script = pathlib.Path(__file__).resolve().parent / "cudnn_attention.py"
    finished = machine.run(name, [machine.python, script], budget)
    print(finished.output.rstrip() + "\n", flush=True)
    if finished.status is None:
        return Outcome(LATE, "before it had a number")
    reason = re.search(r"^absent: (.*)", finished.output, re.M)
    if reason:
        return Outcome(ABSENT, reason[1])
    rates = attention_rates(finished.output)
    if finished.status != 0 or len(rates) != 2:
        return Outcome(FAILED, last_lines(finished.output, 1).strip())
    own = machine.logs / "speed_of_kernels.log"
    ours = attention_rates(own.read_text()) if own.exists() else []
    note = f"cuDNN: {rates[0]:.0f} TFLOP/s forward, {rates[1]:.0f} backward"
    if len(ours) == 2:
        note += f"; ours: {ours[0]:.0f}, {ours[1]:.0f}"
    return Outcome(PASSED, note)


def steps():
    """Name, seconds at most, and what gives the outcome. What may take long comes late: it has what
    the others leave of the time."""
    return [
        ("device", 20, lambda m, n, s: look_at_devices(m)),
        ("libraries", 20, lambda m, n, s: look_at_libraries(m)),
        ("operations against double precision", 90, lambda m, n, s: run_tests(m, n, OPS, s)),
        ("training against the CPU", 30,
         lambda m, n, s: run_tests(m, n, TRAINING, s, "*-*TwoStages*")),
        ("two stages on one device", 20,
         lambda m, n, s: run_tests(m, n, TRAINING, s, "*TwoStagesOnOneDevice*")),
        ("two stages over NCCL", 20,
         lambda m, n, s: run_tests(m, n, TRAINING, s, "*TwoStagesOverNccl*", m.for_nccl)),
        ("penstock-train in two stages", 20, train),
        ("speed of kernels", 30, lambda m, n, s: bench(m, n, s, "kernels")),
        ("speed of GPT-2 124M", 40, lambda m, n, s: bench(m, n, s, "124M")),
        ("speed of GPT-2 124M with graphs", 40, lambda m, n, s: bench(m, n, s, "124M", "--graphs")),
        ("speed of GPT-2 1.5B", 80, lambda m, n, s: bench(m, n, s, "1.5B")),
        ("memcheck of operations", 60, sanitize),
        ("memcheck of training", 40,
         lambda m, n, s: sanitize(m, n, s, TRAINING, "*GivesTheSameBitsAgain")),
        ("racecheck of operations", 60, sanitize),
        ("initcheck of operations", 50, sanitize),
        ("attention beside cuDNN's", 40, beside_cudnn),
    ]
