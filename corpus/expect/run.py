"""A launch with its arguments and results, and how it is written into a file's header."""

import re

from .numbers import listed, spelled

SOURCES = {}

# The simulated device that has an architecture. Architecture-specific targets run on their own architecture alone.
DEVICES = {
    "sm_50": "sim:a100", "sm_75": "sim:a100", "sm_80": "sim:a100", "sm_86": "sim:l4", "sm_89": "sim:l4", "sm_90": "sim:h200",
    "sm_90a": "sim:h200", "sm_100": "sim:b200", "sm_100a": "sim:b200", "sm_100f": "sim:b200", "sm_120": "sim:rtx5090",
    "sm_120a": "sim:rtx5090",
}  # fmt: skip


class File:
    """What a function that makes launches may know of the file: its parts, and what its tool said about it."""

    def __init__(self, name, facts, body):
        self.name, self.facts, self.body = name, facts, body
        self.stem, *self.parts = name.split("/")[1].split(".")
        self.arch = facts["ptxas"].split()[0]

    def has(self, word):
        return word in self.parts

    def entry(self, part):
        """The one kernel whose name contains `part`."""
        found = [e for e in re.findall(r"\.entry ([^\s(]+)", self.body) if part in e]
        assert len(found) == 1, (self.name, part, found)
        return found[0]

    def noted(self, what):
        """A number out of the note, such as the one before `bytes of shared memory`."""
        return int(re.search(rf"(\d+) {what}", self.facts["note"])[1])


class Run:
    def __init__(self, name, entry=None, grid=1, block=32, cluster=None, smem=None, gpu_no=None, options=""):
        def shape(given):
            return ",".join(map(str, given)) if isinstance(given, tuple) else str(given)

        self.line = f"run {name} entry={entry or name} grid={shape(grid)} block={shape(block)}"
        if cluster:
            self.line += f" cluster={shape(cluster)}"
        if smem:
            self.line += f" smem={smem}"
        self.line += options
        self.gpu_no = gpu_no
        self.rest, self.expects, self.arguments = [], [], 0

    def _arg(self, text):
        self.rest.append(f"arg {text}")
        self.arguments += 1
        return self

    def _expect(self, name, ty, values, tolerance):
        close = "".join(f" {key}={value}" for key, value in tolerance.items())
        self.expects.append(f"expect {name} {ty}:{listed(values, ty)}{close}")

    def value(self, ty, value):
        return self._arg(f"{ty}:{spelled(value, ty)}")

    def bytes(self, data):
        return self._arg(f"bytes:{listed(list(data), 'u8')}")

    def pointer(self, name):
        return self._arg(f"ptr:{name}")

    def input(self, ty, values):
        return self._arg(f"in:{ty}:{listed(values, ty)}")

    def output(self, ty, expected, **tolerance):
        self._expect(self.arguments, ty, expected, tolerance)
        return self._arg(f"out:{ty}:{len(expected)}")

    def unchecked(self, ty, values):
        """A buffer that the kernel changes in a way that depends on the schedule."""
        return self._arg(f"inout:{ty}:{listed(values, ty)}")

    def opaque(self, ty, values, why):
        """A buffer in which every device leaves a format of its own."""
        self.expects.append(f'opaque {self.arguments} "{why}"')
        return self._arg(f"inout:{ty}:{listed(values, ty)}")

    def inout(self, ty, before, after, **tolerance):
        self._expect(self.arguments, ty, after, tolerance)
        return self._arg(f"inout:{ty}:{listed(before, ty)}")

    def buffer(self, name, role, ty, values, expected=None):
        """A buffer that no parameter is; `values` is a count for an output."""
        contents = values if role == "out" else listed(values, ty)
        self.rest.append(f"buffer {name} {role}:{ty}:{contents}")
        if expected is not None:
            self._expect(name, ty, expected, {})
        return self

    def tensormap(self, buffer, ty, dims, box, swizzle="none", strides=None):
        fields = [f"buffer={buffer}", f"type={ty}", f"dims={listed_plain(dims)}", f"box={listed_plain(box)}"]
        if strides:
            fields.append(f"strides={listed_plain(strides)}")
        if swizzle != "none":
            fields.append(f"swizzle={swizzle}")
        return self._arg(f"tensormap({', '.join(fields)})")

    def finds(self, code):
        self.expects.append(f"finds {code}")
        return self

    def allows(self, code):
        self.expects.append(f"allows {code}")
        return self

    def lines(self, arch):
        line = f"{self.line} device={DEVICES[arch]}"
        if self.gpu_no:
            line += f' gpu=no "{self.gpu_no}"'
        return [f"// heist: {text}" for text in [line, *self.rest, *self.expects]]


def listed_plain(numbers):
    return f"[{','.join(map(str, numbers))}]"


def kernels(*sources):
    def register(function):
        for source in sources:
            SOURCES[source] = function
        return function

    return register


def reason_not_to_run(file):
    if file.arch not in DEVICES:
        return f"no simulated device has {file.arch}"
    return None


def lines_for(name, facts, body):
    file = File(name, facts, body)
    function = SOURCES.get(name.split(".")[0])
    if function is None:
        raise KeyError(f"expect/ has no launches for {name}, nor a reason why there are none")
    why = reason_not_to_run(file)
    runs = [] if why else list(function(file))
    if len(runs) == 1 and isinstance(runs[0], str):
        why = runs.pop()
    if why:
        return [f"// not run: {why}"]
    entries = set(re.findall(r"\.entry ([^\s(]+)", body))
    ran = {re.search(r"entry=(\S+)", run.line)[1] for run in runs}
    assert entries == ran, (name, entries ^ ran)
    return [line for run in runs for line in run.lines(file.arch)]
