"""For tools/gpu_check: builds the programs that run on a GPU machine and puts them, with the
libraries that such a machine lacks, into one folder that can be moved."""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "gpu_check"
STAGE = BUILD / "penstock-gpu-check"
LIMIT = 64 * 1024 * 1024  # bytes of a packed bundle

# What the GPU machine has: the C and C++ run-time libraries and those of CUDA, whose versions are
# the driver's business.
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so.*|linux-vdso.*)$")
CUDA = re.compile(r"^lib(cuda|cudart|cublas|cublasLt|nccl|nvidia-ml)\.so.*$")


ADVICE = ("; a machine without it, or without the packages of docs/dependencies.md, can unpack a "
          "bundle that 'tools/gpu_check --bundle FILE' makes elsewhere, and run what is in it")


def fail(message):
    sys.exit(f"gpu_check: {message}")


def run(command, advice="", **options):
    try:
        result = subprocess.run(command, **options)
    except OSError as error:
        fail(f"{command[0]} does not start: {error.strerror}{advice}")
    if result.returncode != 0:
        fail(f"'{' '.join(map(str, command))}' failed{advice}")
    return result.stdout


def build(jobs):
    """Builds for sm_90."""
    if shutil.which("nvcc") is None:
        fail(f"building needs nvcc on the PATH{ADVICE}")
    launchers = []
    if shutil.which("ccache"):
        launchers = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("CXX", "CUDA")]
    run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DPENSTOCK_CUDA=ON", "-DPENSTOCK_MPI=OFF", "-DCMAKE_CUDA_ARCHITECTURES=90",
         "-DCMAKE_BUILD_RPATH=$ORIGIN/../lib",
         # As RPATH it holds for the libraries' own libraries too.
         "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags", *launchers], ADVICE,
        stdout=subprocess.DEVNULL)
    run(["cmake", "--build", BUILD, "-j", str(jobs), "--target", "gpu_programs"])


def libraries_of(program):
    """By name: where the loader finds each library of a program, or None."""
    text = run(["ldd", program], capture_output=True, text=True)
    found = {}
    for name, path in re.findall(r"^\s+(\S+) => (\S+)", text, re.M):
        found[name] = None if path == "not" else pathlib.Path(path)
    return found


def stage():
    """Makes STAGE anew from what was built."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for folder in ("bin", "lib", "support"):
        (STAGE / folder).mkdir(parents=True)
    libraries = {}
    for line in (BUILD / "gpu_programs.txt").read_text().split():
        program = pathlib.Path(line)
        run(["strip", "-o", STAGE / "bin" / program.name, program])
        libraries.update(libraries_of(program))
    for name, path in sorted(libraries.items()):
        if SYSTEM.match(name) or CUDA.match(name):
            continue
        if path is None:
            fail(f"the programs need {name}, which the loader does not find here")
        run(["strip", "--strip-unneeded", "-o", STAGE / "lib" / name, path.resolve()])
    for file in ("LICENSE", "README.md", "tools/demo.json", "tools/gpu_check"):
        shutil.copy(ROOT / file, STAGE)
    for file in ("cudnn_attention.py", "gpu_steps.py"):
        shutil.copy(ROOT / "tools" / "support" / file, STAGE / "support")
    return STAGE


def pack(file):
    # For reading what a failed test names.
    for name in run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).splitlines():
        if not name.startswith("tests/golden/"):
            target = STAGE / "sources" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    with tarfile.open(file, "w:xz", preset=6) as archive:
        archive.add(STAGE, arcname=STAGE.name)
    size = file.stat().st_size
    if size > LIMIT:
        fail(f"{file} has {size} bytes, more than the {LIMIT} that may be sent to a GPU machine")
    print(f"{file}: {size / 1024 ** 2:.1f} MiB; on the GPU machine: tar xf {file.name} && "
          f"{STAGE.name}/gpu_check")
