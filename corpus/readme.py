"""Writes the table of README.md from what is in the folders: each source with what it covers, its files and its launches."""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = "<!-- the rest is made by make.py -->"
TITLES = {"nvcc": "CUDA C++ by nvcc", "triton": "Triton", "cute": "CuTe DSL", "hand": "By hand, in older dialects"}


def subject(source: Path) -> str:
    """The first sentence of a source's opening comment."""
    text = source.read_text()
    if source.suffix == ".cu":
        first = re.match(r"(?:// .*\n)+", text)
        lines = [line[3:] for line in first[0].splitlines() if not line.startswith("// build:")]
    elif source.suffix == ".py":
        lines = re.match(r'"""(.*?)"""', text, re.S)[1].splitlines()
    else:
        after = text.split("// ---- end of header\n//\n")[1]
        lines = [line[3:] for line in re.match(r"(?:// .*\n)+", after)[0].splitlines()]
    return " ".join(line.strip() for line in lines)


def rows(folder: Path):
    for source in sorted(p for p in folder.iterdir() if p.suffix in (".cu", ".py") or folder.name == "hand"):
        if source.name == "common.py" or source.suffix not in (".cu", ".py", ".ptx"):
            continue
        if folder.name == "hand":
            files = [source]
        else:
            files = [p for p in sorted(folder.glob("*.ptx")) if f"// from: {source.name}\n" in p.read_text()[:2000]]
        made, launches, kept = [], 0, set()
        for file in files:
            text = file.read_text()
            header = text.split("// ---- end of header")[0]
            launches += header.count("\n// heist: run ")
            kept.update(re.findall(r"\n// not run: (.*)", header))
            made.append(f"{file.stem.replace(source.stem + '.', '', 1)}" if folder.name != "hand" else re.search(r"ptxas: (\S+)", header)[1])
        note = f" ({'; '.join(sorted(kept))})" if kept else ""
        yield f"| `{source.name}` | {subject(source).replace(chr(124), chr(92) + chr(124))} | {', '.join(made)} | {launches}{note} |"


def write() -> None:
    path = HERE / "README.md"
    lines = [path.read_text().split(MARK)[0] + MARK]
    for name, title in TITLES.items():
        found = list(rows(HERE / name))
        lines += ["", f"## {title} (`{name}/`)", "", "| source | covers | PTX for | launches |", "|---|---|---|---|", *found]
    files = sorted(HERE.glob("*/*.ptx"))
    launches = sum(p.read_text().count("\n// heist: run ") for p in files)
    size = sum(p.stat().st_size for p in files) / 1e6
    lines += ["", f"{len(files)} files, {size:.1f} MB, {launches} launches.", ""]
    path.write_text("\n".join(lines))
