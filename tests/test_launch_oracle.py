"""More truth, opt in: emitted training lines are parsed by the argument parsers of the frameworks' own wheels."""

import importlib.util
import shlex
import sys
import types

import pytest

pytestmark = pytest.mark.oracle

RUN = "train llama-3.1-8b --tokens 1B"
TORCHTITAN = (
    f"{RUN} --on h100-sxm:8 --emit torchtitan",
    f"{RUN} --on h100-sxm:16 --strategy pp=2,tp=2 --emit torchtitan",
    f"{RUN} --on h100-sxm:32 --strategy tp=4,cp=2 --sequence 32k --emit torchtitan",
    f"{RUN} --on h100-sxm:16 --precision fp8 --emit torchtitan",
    "train qwen3-30b-a3b --tokens 1B --on h100-sxm:16 --strategy ep=8 --emit torchtitan",
)
ACCELERATE = (
    "train llama-3.1-8b --on rtx-4090:2 --method qlora --tokens 10M --emit fsdp",
    "train llama-3.1-8b --on h100-sxm:8 --method lora --tokens 10M --emit fsdp",
)


def words_of(text):
    """Return the words of a launch line, without its remarks."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.strip().startswith("#")]
    return shlex.split(" ".join(lines), comments=True)


def launched(run, line):
    code, out, err = run(*line.split())
    assert code == 0, err
    return words_of(out)


@pytest.fixture(scope="module")
def torchtitan():
    """Return torchtitan's parser of arguments, without the rest of the package, which needs Triton."""
    found = importlib.util.find_spec("torchtitan")
    if found is None:
        pytest.skip("torchtitan is not installed: pip install .[oracle]")
    package = types.ModuleType("torchtitan")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["torchtitan"] = package
    from torchtitan.config import ConfigManager

    yield ConfigManager
    for name in [one for one in sys.modules if one.partition(".")[0] == "torchtitan"]:
        del sys.modules[name]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", TORCHTITAN)
def test_torchtitan_reads_its_lines(run, torchtitan, line):
    torchrun = pytest.importorskip("torch.distributed.run").get_args_parser()
    words = launched(run, line)
    started = torchrun.parse_args(words[words.index("torchrun") + 1 :])
    assert started.training_script == "torchtitan.train"
    read = torchtitan().parse_args(list(started.training_script_args))
    given = dict(zip(started.training_script_args, started.training_script_args[1:], strict=False))
    assert read.parallelism.tensor_parallel_degree == int(given["--parallelism.tensor_parallel_degree"])
    assert read.training.seq_len == int(given["--training.seq_len"])
    degrees = read.parallelism
    ranks = int(started.nnodes) * int(started.nproc_per_node)
    whole = degrees.tensor_parallel_degree * degrees.pipeline_parallel_degree * degrees.context_parallel_degree
    whole *= degrees.data_parallel_shard_degree * degrees.data_parallel_replicate_degree
    assert whole == ranks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", ACCELERATE)
def test_accelerate_reads_its_lines(run, line):
    parser = pytest.importorskip("accelerate.commands.launch").launch_command_parser()
    words = launched(run, line)
    start = words.index("accelerate")
    assert words[start + 1] == "launch"
    read = parser.parse_args(words[start + 2 :])
    assert read.training_script
