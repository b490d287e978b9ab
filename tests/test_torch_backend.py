"""What torch is asked to do when a machine is measured, by a torch that writes down what it is asked."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from roofplan.measure.machine import backends, probe
from roofplan.measure.machine.backends import CAPTURED, ROTATION, Torch, described

BITS = {"bfloat16": 16, "float16": 16, "float32": 32, "float64": 64, "int8": 8, "float8_e4m3fn": 8}


@dataclass
class Tensor:
    """A tensor without numbers."""

    shape: tuple
    dtype: str
    device: str
    told: list
    pinned: bool = False

    def to(self, dtype):
        return Tensor(self.shape, dtype, self.device, self.told)

    def t(self):
        return Tensor(self.shape[::-1], self.dtype, self.device, self.told)

    def add_(self, value):
        self.told.append(("add", value))

    def copy_(self, other, *, non_blocking=False):
        pinned = (other.pinned, self.pinned)
        self.told.append(("copy", other.device, self.device, other.shape[0], pinned, non_blocking))


@dataclass
class Library:
    """A torch whose accelerators are `kind`'s, which multiplies in `able` formats."""

    kind: str
    able: set
    count: int = 2
    told: list = field(default_factory=list)
    __version__ = "2"

    def __post_init__(self):
        for name in BITS:
            setattr(self, name, name)
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=None)))

        @contextmanager
        def graph(_graph):
            self.told.append("begin")
            yield
            self.told.append("end")

        module = SimpleNamespace(
            synchronize=lambda: self.told.append("wait"),
            device_count=lambda: self.count,
            is_available=lambda: True,
            set_device=lambda device: self.told.append(("set", str(device))),
            CUDAGraph=lambda: SimpleNamespace(replay=lambda: self.told.append("replay")),
            graph=graph,
            recommended_max_memory=lambda: 7,
            get_device_properties=lambda index: SimpleNamespace(name=f"GPU {index}", total_memory=100 + index),
        )
        if self.kind == "mps":
            del module.set_device, module.device_count
        setattr(self, self.kind, module)

    def device(self, text):
        kind, _, index = text.partition(":")
        return type("Device", (), {"type": kind, "index": int(index) if index else None, "__str__": lambda _: text})()

    def finfo(self, kind):
        return SimpleNamespace(bits=BITS[kind])

    def set_num_threads(self, threads):
        self.told.append(("threads", threads))

    def ones(self, *shape, dtype="float32", device="cpu", pin_memory=False):
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        return Tensor(shape, dtype, str(device), self.told, pin_memory)

    randn = empty = ones

    def empty_like(self, other):
        return Tensor(other.shape, other.dtype, other.device, self.told)

    def mm(self, left, right, out):
        if left.dtype not in self.able:
            raise RuntimeError
        assert (left.shape[1], left.shape[0], right.shape[1]) == (right.shape[0], *out.shape)
        assert left.dtype == right.dtype == out.dtype
        self.told.append(("mm", left.dtype, left.shape, right.shape, id(right), self.backends.cuda.matmul.allow_tf32))

    def _int_mm(self, left, right):
        if "int8" not in self.able:
            raise RuntimeError
        self.told.append(("mm", left.dtype, left.shape, right.shape))

    def _scaled_mm(self, left, right, **said):
        if "float8_e4m3fn" not in self.able:
            raise AttributeError
        self.told.append(("mm", left.dtype, left.shape, right.shape, said["out_dtype"], said["use_fast_accum"]))

    def sum(self, data):
        self.told.append(("sum", data.dtype, data.shape))

    def max(self, data):
        self.told.append(("max", data.dtype, data.shape))

    def drain(self):
        """Return what was asked since the last call."""
        said, self.told[:] = list(self.told), []
        return said


EVERY = set(BITS)


@pytest.fixture
def torch(monkeypatch):
    def made(kind, able=EVERY, **more):
        library = Library(kind, able, **more)
        monkeypatch.setattr(backends, "import_module", lambda name: {"torch": library}[name])
        return library

    return made


@pytest.mark.slow
def test_formats_are_those_that_products_run_in(torch):
    library = torch("cuda")
    found = Torch("cuda:1", 3)
    assert found.formats == ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp64")
    said = library.drain()
    assert said[0] == ("set", "cuda:1")
    products = [one for one in said if one[0] == "mm"]
    assert {(one[2], one[3]) for one in products} == {((64, 64), (64, 64))}
    assert len(products) == len(found.formats)
    assert (found.host, found.name) == (False, "torch 2 on cuda:1")
    torch("cuda", {"float32", "bfloat16"})
    assert Torch("cuda", 3).formats == ("bf16", "fp32", "tf32")
    torch("xpu")
    assert Torch("xpu", 3).formats == ("bf16", "fp16", "fp32", "fp8", "int8", "fp64")


def test_processors_take_threads_and_nobody_waits_for_them(torch):
    library = torch("cpu")
    found = Torch("cpu", 3)
    found.launch()(2)
    assert found.host
    assert library.told[0] == ("threads", 3)
    assert "wait" not in library.told
    assert found.captured() is None
    assert found.links() == {}


def test_devices_without_a_choice_are_not_chosen(torch):
    library = torch("mps")
    found = Torch("mps", 3)
    assert not found.host
    assert not any(one[0] == "set" for one in library.told)


@pytest.mark.parametrize(("number", "tf32"), [("fp32", False), ("tf32", True)])
def test_few_rows_meet_weights_that_no_cache_keeps(torch, number, tf32):
    library = torch("cuda")
    found = Torch("cuda", 1)
    library.drain()
    found.product(number, 64, 4096, 4096)(9)
    said = library.drain()
    assert said[-1] == "wait"
    assert said.count("wait") == 1
    assert [one[:4] for one in said[:-1]] == [("mm", "float32", (64, 4096), (4096, 4096))] * 9
    assert {one[5] for one in said[:-1]} == {tf32}
    weights = [one[4] for one in said[:-1]]
    count = ROTATION // (4096 * 4096 * 4)
    assert len(set(weights)) == count == 4
    assert weights[:4] == weights[4:8]
    found.product("bf16", 65, 4096, 4096)(3)
    assert len({one[4] for one in library.drain()[:-1]}) == 1
    found.product("fp64", 1, 8192, 8192)(3)
    assert len({one[4] for one in library.drain()[:-1]}) == 1  # half a gigabyte: more than is rotated


def test_scaled_and_whole_products_have_kernels_of_their_own(torch):
    library = torch("cuda")
    found = Torch("cuda", 1)
    library.drain()
    found.product("fp8", 3, 5, 7)(1)
    found.product("int8", 3, 5, 7)(1)
    assert library.drain() == [
        ("mm", "float8_e4m3fn", (3, 5), (5, 7), "bfloat16", True),
        "wait",
        ("mm", "int8", (3, 5), (5, 7)),
        "wait",
    ]


def test_memory_is_read_and_copied_in_numbers_of_four_bytes(torch):
    library = torch("cuda")
    found = Torch("cuda", 1)
    library.drain()
    for read in found.reads(4000):
        read(1)
    found.copy(4000)(1)
    said = [one for one in library.drain() if one != "wait"]
    assert said == [
        ("sum", "float32", (1000,)),
        ("max", "float32", (1000,)),
        ("copy", "cuda", "cuda", 1000, (False, False), False),
    ]


@pytest.mark.slow
def test_launches_alone_and_in_a_graph(torch):
    library = torch("cuda")
    found = Torch("cuda", 1)
    library.drain()
    found.launch()(3)
    assert library.drain() == [("add", 1.0)] * 3 + ["wait"]
    replays = found.captured()
    assert library.drain() == [("add", 1.0), "wait", "begin", *[("add", 1.0)] * CAPTURED, "end"]
    replays(2)
    assert library.drain() == ["replay", "replay", "wait"]


@pytest.mark.slow
def test_links_go_to_the_host_and_to_other_devices(torch):
    library = torch("cuda", count=3)
    found = Torch("cuda:1", 1)
    links = found.links()
    assert list(links) == ["host to device", "device to host", "device to device 0", "device to device 2"]
    library.drain()
    for link in links.values():
        link(40)(1)
    links["host to device"](1)(1)
    said = [one[1:] for one in library.drain() if one != "wait"]
    assert said == [
        ("cpu", "cuda:1", 10, (True, False), True),
        ("cuda:1", "cpu", 10, (False, True), True),
        ("cuda:1", "cuda:0", 10, (False, False), True),
        ("cuda:1", "cuda:2", 10, (False, False), True),
        ("cpu", "cuda:1", 1, (True, False), True),
    ]
    torch("cuda", count=1)
    assert list(Torch("cuda", 1).links()) == ["host to device", "device to host"]


def test_devices_are_described(torch):
    torch("cuda")
    assert described("cuda:1") == {"name": "GPU 1", "memory": 101}
    assert described("cuda") == {"name": "GPU 0", "memory": 100}
    library = torch("cuda")
    one = SimpleNamespace(name="GPU", total_memory=5, uuid="1-2")
    library.cuda.get_device_properties = lambda _: one
    assert described("cuda") == {"name": "GPU", "memory": 5, "uuid": "GPU-1-2"}
    torch("mps")
    assert described("mps") == {"name": "Apple GPU", "memory": 7}


def test_devices_are_those_that_torch_finds(torch, monkeypatch):
    monkeypatch.setattr(probe, "find_spec", lambda _: None)
    assert probe.devices() == ["numpy"]
    assert probe.chosen(None) == "numpy"
    library = torch("cuda", count=2)
    monkeypatch.setattr(probe, "find_spec", lambda name: name)
    monkeypatch.setattr(probe, "import_module", lambda name: {"torch": library}[name])
    assert probe.devices() == ["numpy", "cpu", "cuda:0", "cuda:1"]
    assert [probe.chosen(one) for one in (None, "cuda", "cuda:1", "cpu")] == ["cuda:0", "cuda:0", "cuda:1", "cpu"]
    library.cuda.is_available = lambda: False
    library.backends.mps = SimpleNamespace(is_available=lambda: True)
    assert probe.devices() == ["numpy", "cpu", "mps"]
