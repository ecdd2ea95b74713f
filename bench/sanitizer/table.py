#!/usr/bin/env python3
"""What compute-sanitizer, ptxas and `heist check` each say of the kernels in rules/ that break a rule.

    table.py gpu --heist HEIST --out FOLDER     on a machine with a GPU: run every kernel under compute-sanitizer
    table.py gpu ... --only M001 --jobs 1       the same for a few, one at a time, to know how long one takes
    table.py samples FOLDER [--single FOLDER]   keep what they said, without what belongs to one machine, in logs/
    table.py table --heist HEIST [--ptxas P]    write docs/checking.md from logs/, ptxas and `heist check`

A kernel is a case of a `bad*.ptx` that an sm_90 GPU can launch; its launch is the one that the file names. Each runs in a
process of its own, with a time limit, since what it does to the GPU is not to be foreseen.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import resource
import shlex
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LOGS = HERE / "logs"
PAGE = ROOT / "docs" / "checking.md"
BY_HAND = "## What is found, and what is not"

# Which tools can have something to say, by the letter of the rule or the rule itself.
TOOLS = {
    "M": ["memcheck"], "R": ["racecheck"], "B": ["synccheck"], "T": ["memcheck", "synccheck"],
    "A": ["synccheck"],
    "M010": ["initcheck", "memcheck"], "M011": ["initcheck", "memcheck"], "M012": ["initcheck", "memcheck"],
    "M013": ["initcheck", "memcheck"],
    **{f"A{number:03}": ["racecheck"] for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 29)},
    **{f"A{number:03}": ["memcheck", "synccheck"] for number in (10, 15, 16, 18, 19, 24)},
    **{f"A{number:03}": ["memcheck"] for number in (21, 23, 25)},
}
# Kernels that never end hold up the GPU for the others: they come last.
ENDLESS = {"B002", "B005", "B006", "B010", "B013", "A012", "A013", "A014", "A017"}
SECONDS = 10


class Kernel:
    """One launch of one file."""

    def __init__(self, path, name, line):
        self.path, self.name, self.rule = path, name, path.parent.name[:4]
        self.flags, self.skip = [], None
        words = shlex.split(line)
        for word in words:
            key, _, value = word.partition("=")
            if key in ("entry", "grid", "block", "cluster", "smem"):
                self.flags += [f"--{key}", value]
            elif key == "cooperative":
                self.flags.append("--cooperative")
        self.args = []

    @property
    def id(self):
        return f"{self.path.parent.name}.{self.path.stem}.{self.name}"

    def launch(self):
        return self.flags + self.args


def kernels():
    found = []
    for path in sorted(ROOT.glob("rules/*/bad*.ptx")):
        text = path.read_text()
        target = re.search(r"^\.target\s+sm_(\d+)(a?)", text, re.M)
        rule = path.parent.name[:4]
        if not target or not (int(target[1]) < 90 and not target[2] or int(target[1]) == 90):
            continue
        if not (TOOLS.get(rule) or TOOLS.get(rule[0])):
            continue
        kernel = None
        for line in text.splitlines():
            if match := re.match(r"// heist: run (\S+)(.*)", line):
                kernel = Kernel(path, match[1], match[2])
                found.append(kernel)
            elif kernel and (match := re.match(r"// heist: (arg|buffer) (.*)", line)):
                kernel.args += [f"--{match[1]}", match[2]]
            elif re.match(r"// heist: check ", line):
                kernel = None
    return found


def tools_of(kernel):
    return TOOLS.get(kernel.rule) or TOOLS[kernel.rule[0]]


def run_gpu(options):
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    jobs = [(kernel, tool) for kernel in kernels() for tool in [None, *tools_of(kernel)]]
    jobs = [job for job in jobs if job[0].id.startswith(options.only)]
    jobs.sort(key=lambda job: job[0].rule in ENDLESS)
    times = {}
    if options.keep:
        # What ended by itself in an earlier run need not be run again, nor what never does.
        earlier = pathlib.Path(options.keep)
        before = json.loads((earlier / "times.json").read_text())
        for kernel, tool in list(jobs):
            name = f"{kernel.id}.{tool or 'alone'}"
            if name in before and (before[name]["code"] is not None or kernel.rule in ENDLESS):
                jobs.remove((kernel, tool))
                times[name] = before[name]
                (out / f"{name}.log").write_text((earlier / f"{name}.log").read_text())

    began = time.monotonic()

    def one(job):
        kernel, tool = job
        if time.monotonic() - began > options.deadline:
            print(f"no time left for {kernel.id} {tool}")
            return
        command = [options.heist, "exec", str(kernel.path.relative_to(ROOT)), "--device", "gpu", "--timeout", "5", *kernel.launch()]
        if tool:
            command = ["compute-sanitizer", "--tool", tool, "--print-limit", "40", *command]
        start = time.monotonic()
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
            text, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            text = "".join((part or b"").decode(errors="replace") for part in (late.stdout, late.stderr))
            text, code = text + f"\n(ended after {SECONDS} s)\n", None
        name = f"{kernel.id}.{tool or 'alone'}"
        (out / f"{name}.log").write_text(text)
        times[name] = {"seconds": round(time.monotonic() - start, 2), "code": code}

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, jobs))
    if options.nvcc:
        program = out / "uninit"
        subprocess.run([options.nvcc, "-arch=sm_90", "-lineinfo", "-o", program, HERE / "uninit.cu"], check=True)
        done = subprocess.run(["compute-sanitizer", "--tool", "initcheck", program], capture_output=True, text=True, timeout=60)
        (out / "uninit.initcheck.log").write_text(done.stdout + done.stderr)
        program.unlink()
        times["uninit.initcheck"] = {"seconds": 0, "code": done.returncode}
    (out / "times.json").write_text(json.dumps(times, indent=1, sort_keys=True))
    print(f"{len(jobs)} runs")


def trimmed(text):
    """The log without paths and addresses of the machine that it was made on."""
    kept = []
    for line in text.splitlines():
        if re.search(r"Host Frame|Saved host backtrace|\(ended after", line):
            continue
        line = re.sub(r"(in|\[)\s*/[^\s\]]*/(lib[^\s/\]]+)", r"\1 \2", line)
        kept.append(line.rstrip())
    return re.sub(r"(\n=========\s*)+\n(?==========\s*\n)", "\n", "\n".join(kept)) + "\n"


def samples(options):
    """Keeps the logs in which the tool found something, and of every run how long it took and what it came to.

    What was kept of kernels that were not run this time stays."""
    source = pathlib.Path(options.folder)
    LOGS.mkdir(exist_ok=True)
    known = LOGS / "runs.json"
    runs = json.loads(known.read_text()) if known.exists() else {}
    again = json.loads((source / "times.json").read_text())
    runs.update(again)
    for name, run in again.items():
        (LOGS / f"{name}.log").unlink(missing_ok=True)
        text = trimmed((source / f"{name}.log").read_text())
        run["says"] = codes_of_text(text, run["code"]) if name.endswith(".alone") else said(text)
        if not name.endswith(".alone") and run["says"] not in (NOTHING, HUNG):
            (LOGS / f"{name}.log").write_text(text)
    known.write_text(json.dumps(runs, indent=1, sort_keys=True) + "\n")
    if options.single:
        single = (pathlib.Path(options.single) / "times.json").read_text()
        (LOGS / "single.json").write_text(single + "\n")


NOTHING, HUNG = "nothing", "nothing: it never ends"


def said(text):
    """What a sanitizer log comes down to."""
    counts = {}
    for line in text.splitlines():
        line = re.sub(r"^=+ ?", "", line)
        if match := re.match(r"(Invalid \S+ \S+ (?:read|write|atomic)[^.]*|Barrier error[^.]*|Uninitialized \S+ \S+ read"
                             r"|(?:Warning|Error): (?:Race|Potential)[^.(]*|Program hit \S+|Invalid [^.]*|Misaligned[^.]*|Out-of-range[^.]*|Illegal instruction|Unknown Error)", line):
            what = re.sub(r" of size \d+ bytes?", "", match[1]).strip()
            what = re.sub(r"(Race reported).*", r"\1", what)
            counts[what] = counts.get(what, 0) + 1
    summary = re.search(r"(ERROR|RACECHECK) SUMMARY: (.*)", text)
    if not counts:
        if summary and not re.match(r"0 ", summary[2]):
            return summary[2].strip()
        return NOTHING if summary else HUNG
    # The API error is what the report above it led to.
    if len(counts) > 1:
        counts = {what: count for what, count in counts.items() if not what.startswith("Program hit")}
    return "; ".join(f"{what} ({count})" if count > 1 else what for what, count in counts.items())


def measured(command):
    """A command's output and its processor time in milliseconds, which does not depend on who else is at work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return done, spent * 1000


def codes(done):
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        return f"? {done.stderr.strip()[:60]}"
    names = []
    def walk(value):
        if isinstance(value, dict):
            if isinstance(value.get("code"), str) and re.fullmatch(r"[A-Z]\d{3}", value["code"]) and value["code"] not in names:
                names.append(value["code"])
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
    walk(found)
    return " ".join(names) or "nothing"


def table(options):
    runs = json.loads((LOGS / "runs.json").read_text())
    single = json.loads((LOGS / "single.json").read_text())
    missing = [kernel.id for kernel in kernels() if f"{kernel.id}.alone" not in runs]
    if missing:
        raise SystemExit("not run on a GPU yet: " + ", ".join(missing))
    rows = []
    totals = {"check": [], "run": [], "ptxas": []}
    named = {"check": 0, "run": 0, "sanitizer": 0}
    for kernel in kernels():
        path = str(kernel.path.relative_to(ROOT))
        tools = [(tool, runs[f"{kernel.id}.{tool}"]["says"]) for tool in tools_of(kernel) if f"{kernel.id}.{tool}" in runs]
        alone_says = runs[f"{kernel.id}.alone"]["says"]
        ptxas = "-"
        if options.ptxas:
            target = re.search(r"^\.target\s+(\w+)", kernel.path.read_text(), re.M)[1]
            done, spent = measured([options.ptxas, "-v", f"-arch={target}", "-o", "/dev/null", path])
            totals["ptxas"].append(spent)
            lines = [line for line in (done.stderr + done.stdout).splitlines() if re.search(r"error|warning", line, re.I)]
            ptxas = re.sub(r"^.*?(warning|error)\s*:\s*", r"\1: ", lines[0]).strip()[:90] if lines else "nothing"
        still, spent = measured([options.heist, "check", path, "--json"])
        totals["check"].append(spent)
        ran, spent = measured([options.heist, "check", path, "--json", *kernel.launch()])
        totals["run"].append(spent)
        found = (codes(still), codes(ran))
        named["check"] += kernel.rule in found[0]
        named["run"] += kernel.rule in found[1]
        named["sanitizer"] += any(what not in (NOTHING, HUNG) for _, what in tools)
        cell = "<br>".join(f"{tool}: {what}" for tool, what in tools)
        rows.append((kernel, alone_says, cell, ptxas, *found))
    def mean(values):
        return sum(values) / max(len(values), 1)

    alone = mean([run["seconds"] for name, run in single.items() if name.endswith(".alone")])
    watched = mean([run["seconds"] for name, run in single.items() if not name.endswith(".alone")])
    lines = [
        "# Broken kernels: what each tool says",
        "",
        "Made by `bench/sanitizer/table.py`, which says how. Each row is a kernel in `rules/` that breaks a rule on purpose, at the",
        "smallest launch that shows it. On the GPU it ran alone and under the tools of compute-sanitizer that could have something to",
        "say, on an H200 with CUDA 13.0; ptxas is 13.4. `heist check` had no GPU: first the file alone, then with the launch. The kernels",
        "are ours, at least one for each rule, so the last column is full because a test holds it so; what there is to see is the others.",
        "",
        f"Of {len(rows)} kernels, compute-sanitizer has something to say of {named['sanitizer']}; `heist check` names the rule that is broken in",
        f"{named['check']} without a launch and in {named['run']} with one. One kernel alone on the GPU takes {alone:.1f} s, most of it the start of",
        f"the driver, and {watched:.1f} s under compute-sanitizer; ptxas takes {mean(totals['ptxas']):.0f} ms, and `heist check` {mean(totals['check']):.0f} ms without and",
        f"{mean(totals['run']):.0f} ms with a launch (processor time).",
        "",
        "| kernel | on the GPU | compute-sanitizer | ptxas | `heist check` | with the launch |",
        "|---|---|---|---|---|---|",
    ]
    for kernel, alone, cell, ptxas, still, ran in rows:
        name = f"`{kernel.path.parent.name}/{kernel.path.stem}`"
        lines.append(f"| {name} {kernel.name} | {alone} | {cell} | {ptxas} | {still} | {ran} |")
    # What stands below the table is written by hand.
    by_hand = PAGE.read_text().partition(BY_HAND)
    PAGE.write_text("\n".join(lines) + "\n\n" + by_hand[1] + by_hand[2])
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} kernels")


def codes_of_text(text, code):
    """What `heist exec` said of a run on the GPU."""
    found = re.findall(r"(?:error|warning)\[([A-Z]\d{3})\]", text)
    if found:
        return " ".join(dict.fromkeys(found))
    return "hangs" if code is None else "runs"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = options.add_subparsers(dest="command", required=True)
    gpu = commands.add_parser("gpu")
    gpu.add_argument("--heist", required=True)
    gpu.add_argument("--out", required=True)
    gpu.add_argument("--jobs", type=int, default=6, help="runs at a time; many wait for each other at the driver")
    gpu.add_argument("--nvcc", help="also make a program of uninit.cu and run it under initcheck")
    gpu.add_argument("--only", metavar="RULE", default="", help="only kernels whose rule begins with this")
    gpu.add_argument("--keep", metavar="FOLDER", help="an earlier run, of which only what was cut short is run again")
    gpu.add_argument("--deadline", type=float, default=120, help="seconds after which no further run is started")
    kept = commands.add_parser("samples")
    kept.add_argument("folder")
    kept.add_argument("--single", metavar="FOLDER")
    made = commands.add_parser("table")
    made.add_argument("--heist", required=True)
    made.add_argument("--ptxas")
    options = options.parse_args()
    {"gpu": run_gpu, "samples": samples, "table": table}[options.command](options)


if __name__ == "__main__":
    main()
