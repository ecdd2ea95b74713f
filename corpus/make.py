#!/usr/bin/env python3
"""Regenerates the PTX corpus.

    python3 -m venv VENV
    VENV/bin/pip install -r corpus/requirements.txt      # nvcc 13.4, Triton 3.9, CuTe DSL; no GPU needed
    VENV/bin/python corpus/make.py                       # everything
    VENV/bin/python corpus/make.py nvcc/saxpy triton     # only the files whose path starts so
    python3 corpus/make.py --headers                     # only rewrite the header comments (no tools needed)
    VENV/bin/python corpus/make.py --check               # only run ptxas over the files as they are

A host g++ is needed by nvcc. What is made:

  nvcc/NAME.cu      every `// build: FLAGS [=> VARIANT]` line in the source makes nvcc/NAME.ARCH[.VARIANT].ptx
  triton/NAME.py    run as a script, makes triton/NAME.cc90[.VARIANT].ptx for each compute capability and variant
  cute/NAME.py      run as a script, makes cute/NAME.ARCH[.VARIANT].ptx
  hand/NAME.ptx     written by hand; only checked, never made

Each file gets a header of comments: what made it, from what, with which command, which architecture ptxas
assembles it for, and the launches with their expected results, which `expect/` computes. Compilers run in a
scratch folder with a fixed name and relative paths, so that no path of the machine is in a file.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRATCH = Path("/tmp/heist-corpus")
END_OF_HEADER = "// ---- end of header"


def toolkit() -> Path:
    """The folder of the CUDA tools that pip installed into this interpreter's environment."""
    found = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13"
    if not (found / "bin" / "ptxas").exists():
        sys.exit(f"no ptxas under {found}: run this with the interpreter of a virtual environment (see the top of {__file__})")
    return found


def run(command, cwd, env=None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def without_paths(text: str, cuda: Path) -> str:
    """Makes the paths of the scratch folder and of the toolkit relative."""
    text = re.sub(rf"{SCRATCH}/?", "", text)
    text = text.replace(f"{cuda}/", "cuda/").replace(f"{sysconfig.get_paths()['purelib']}/", "site-packages/")
    return re.sub(r'(\.file\s+\d+\s+")cuda/bin/\.\./', r"\1cuda/", text)


def header(facts: dict, name: str, body: str) -> str:
    import expect

    lines = [f"// {key}: {value}" for key, value in facts.items()]
    lines += expect.header_lines(name, facts, body)
    lines.append(END_OF_HEADER)
    return "\n".join(lines) + "\n"


def facts_of(text: str) -> dict:
    """The header facts of a file made earlier."""
    facts = {}
    for line in text.splitlines():
        if line == END_OF_HEADER:
            return facts
        found = re.match(r"// (made by|from|command|ptxas|note): (.*)", line)
        if found:
            facts[found[1]] = found[2]
    return facts


def write(path: Path, facts: dict, body: str) -> None:
    name = str(path.relative_to(HERE).with_suffix(""))
    path.write_text(header(facts, name, body) + body.lstrip("\n"))


def assemble(path: Path, cuda: Path) -> str:
    """Runs ptxas for the architecture the file names; an empty answer is a pass."""
    found = re.search(r"^// ptxas: (\S+)", path.read_text(), re.M)
    if not found:
        return f"{path}: no `// ptxas:` line"
    if found[1] == "none":
        return ""
    command = [str(cuda / "bin" / "ptxas"), f"-arch={found[1]}", str(path), "-o", "/dev/null"]
    if "-rdc=true" in path.read_text()[:4000]:
        command.insert(1, "-c")
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{path}: {done.stdout}{done.stderr}"


# ---- nvcc

BUILD = re.compile(r"^// build: (.*?)(?: => (\S+))?$", re.M)


def nvcc_targets():
    for source in sorted((HERE / "nvcc").glob("*.cu")):
        builds = BUILD.findall(source.read_text())
        if not builds:
            sys.exit(f"{source}: no `// build:` line")
        for flags, variant in builds:
            arch = re.search(r"-arch=(\S+)", flags)[1]
            parts = [source.stem, arch] + ([variant] if variant else [])
            yield HERE / "nvcc" / (".".join(parts) + ".ptx"), source, flags.split(), arch


def make_nvcc(target, cuda: Path) -> None:
    path, source, flags, arch = target
    command = ["cuda/bin/nvcc", "-std=c++17", *flags, "-ptx", source.name, "-o", path.name]
    run(command, SCRATCH)
    body = without_paths((SCRATCH / path.name).read_text(), cuda)
    version = re.search(r"release \S+, V(\S+)", body)[1]
    facts = {
        "made by": f"nvcc {version}",
        "from": source.name,
        "command": " ".join(["nvcc", *command[1:]]),
        "ptxas": arch,
    }
    write(path, facts, body)


# ---- Triton and CuTe DSL: each source is a script that prints what it made


def script_targets(folder: str):
    return sorted(p for p in (HERE / folder).glob("*.py") if p.name != "common.py")


def make_script(source: Path, cuda: Path) -> list:
    """Runs one Triton or CuTe source, which leaves `NAME.ptx` files in the scratch folder."""
    out = SCRATCH / f"out-{source.stem}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    home = SCRATCH / "cache"
    env = dict(os.environ, TRITON_CACHE_DIR=str(home), TRITON_ALWAYS_COMPILE="1", PYTHONDONTWRITEBYTECODE="1")
    said = run([sys.executable, source.name, f"../{out.name}"], SCRATCH / f"{source.parent.name}-src", env)
    notes = dict(re.findall(r"^NOTE (\S+) (.*)$", said, re.M))
    made = []
    for line in said.splitlines():
        found = re.match(r"MADE (\S+) (\S+) (.*)$", line)
        if not found:
            continue
        file, arch, tool = found.groups()
        path = HERE / source.parent.name / file
        facts = {
            "made by": tool,
            "from": source.name,
            "command": f"python {source.name} FOLDER",
            "ptxas": arch,
        }
        if file in notes:
            facts["note"] = notes[file]
        write(path, facts, without_paths((out / file).read_text(), cuda))
        made.append(path)
    if not made:
        raise RuntimeError(f"{source} made nothing:\n{said}")
    return made


def prepare(cuda: Path) -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    (SCRATCH / "cuda").symlink_to(cuda)
    for source in (HERE / "nvcc").glob("*.cu"):
        shutil.copy(source, SCRATCH / source.name)
    for folder in ("triton", "cute"):
        shutil.copytree(HERE / folder, SCRATCH / f"{folder}-src", ignore=shutil.ignore_patterns("*.ptx", "__pycache__"))


def main() -> int:
    arguments = sys.argv[1:]
    flags = {a for a in arguments if a.startswith("--")}
    wanted = tuple(a for a in arguments if not a.startswith("--"))
    sys.path.insert(0, str(HERE))
    import readme

    def chosen(path: Path) -> bool:
        return not wanted or str(path.relative_to(HERE)).startswith(wanted)

    if "--headers" in flags:
        for path in filter(chosen, sorted(HERE.glob("*/*.ptx"))):
            text = path.read_text()
            if END_OF_HEADER in text:
                write(path, facts_of(text), text.split(END_OF_HEADER + "\n", 1)[1])
        readme.write()
        return 0

    cuda = toolkit()
    failures = []

    def attempt(job, *given):
        try:
            return job(*given)
        except (RuntimeError, OSError) as error:
            failures.append(str(error))
            return None

    with ThreadPoolExecutor(2) as pool:
        if "--check" not in flags:
            prepare(cuda)
            jobs = [(make_nvcc, t) for t in nvcc_targets() if chosen(t[0]) or chosen(t[1])]
            jobs += [(make_script, s) for f in ("triton", "cute") for s in script_targets(f) if chosen(s)]
            list(pool.map(lambda job: attempt(job[0], job[1], cuda), jobs))
        files = [p for p in sorted(HERE.glob("*/*.ptx")) if chosen(p)]
        failures += [said for said in pool.map(lambda p: assemble(p, cuda), files) if said]
    readme.write()
    for failure in failures:
        print(failure, file=sys.stderr)
    size = sum(p.stat().st_size for p in files)
    print(f"{len(files)} files, {size} bytes, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
