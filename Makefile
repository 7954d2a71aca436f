# Everything sets itself up: `make demo` and `make test` work in a fresh clone with Python 3.11 and a C compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/python -m pip --disable-pip-version-check install --quiet

MINDSPORE = .venv-mindspore

.PHONY: demo test quick test-companions test-mindspore test-kernels corpus-mindspore real-mindspore real real-quick lint bench corpus mutants pairs porting profile docs setup web vscode web-test screenshots wheel clean

setup: $(VENV)/.ready

# torch first and pinned: anything else would pull in several gigabytes of CUDA.
$(VENV)/.ready: pyproject.toml constraints/dev.txt hatch_build.py $(wildcard src/tensonde/digest/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --constraint constraints/dev.txt torch numpy
	TENSONDE_KERNEL=$${TENSONDE_KERNEL:-try} $(PIP) --constraint constraints/dev.txt --group dev --editable '.[torch,train,tune]'
	@touch $@

demo: setup ## a bundled training that goes wrong, diagnosed
	@mkdir -p .tensonde
	@echo "$$ tensonde run examples/focal_loss.py"
	@$(BIN)/tensonde run examples/focal_loss.py || true

test: setup web
	@$(BIN)/python -m compileall -q src  # hundreds of test processes import it, and write nothing themselves
	$(BIN)/python -m pytest -n 2 --dist loadgroup --ignore tests/browser --ignore tests/kernels $(TESTS)

# Tests in these folders that need torch or start a process that may train are skipped.
QUICK ?= tests/cli tests/compare tests/debugger tests/digest tests/dump tests/export tests/log tests/model tests/report tests/rules \
	tests/session tests/sources tests/store tests/watch tests/web tests/hub/test_graph_health.py tests/hub/test_health.py \
	tests/hub/test_outbox.py tests/hub/test_requests.py $(wildcard tests/frozen)

quick: setup ## the tests that need neither torch nor a training
	$(BIN)/python -m pytest --quick -n 2 --dist loadgroup -m "not companions and not slow" $(QUICK)

test-companions: setup ## the tests with Lightning, Transformers, Accelerate, Ray and W&B, which `make test` skips
	$(PIP) --constraint constraints/dev.txt --group companions
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m companions

# An environment of its own: MindSpore needs numpy < 2, and torch must not be needed beside it.
$(MINDSPORE)/.ready: pyproject.toml constraints/mindspore.txt hatch_build.py $(wildcard src/tensonde/digest/*.[ch])
	$(PYTHON) -m venv $(MINDSPORE)
	$(MINDSPORE)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade 'pip>=25.1'
	TENSONDE_KERNEL=$${TENSONDE_KERNEL:-try} $(MINDSPORE)/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint constraints/mindspore.txt --group mindspore --editable '.[mindspore]'
	@touch $@

test-mindspore: $(MINDSPORE)/.ready ## the conformance suite and the tests of the MindSpore adapter
	$(MINDSPORE)/bin/python -m pytest tests/conformance tests/mindspore_adapter $(TESTS)

corpus-mindspore: $(MINDSPORE)/.ready ## the corpus of MindSpore trainings under tensonde run
	$(MINDSPORE)/bin/python corpus/run.py --corpus corpus/mindspore --jobs 1 $(CORPUS)

real-mindspore: $(MINDSPORE)/.ready ## MindSpore programs as users write them, bare and under tensonde run: nothing may differ
	$(MINDSPORE)/bin/python corpus/trust.py --programs corpus/mindspore/real $(REAL)

test-kernels: setup ## the kernels for GPUs under Triton's interpreter, and compiled; `make test` skips them
	$(PIP) --constraint constraints/dev.txt --group kernels
	$(BIN)/python -m pytest tests/kernels

real: setup ## programs on real libraries, bare and under tensonde run: nothing may differ
	$(PIP) --constraint constraints/dev.txt --group real
	$(BIN)/python corpus/trust.py $(REAL)

real-quick: setup ## the part of them that CI runs
	$(PIP) --constraint constraints/dev.txt --group real-quick
	$(BIN)/python corpus/trust.py --quick

web: setup ## the browser UI, if its sources changed; without Node it says so and goes on
	@$(BIN)/python hatch_build.py web

vscode: ## the extension for VS Code: its unit tests, and vscode/tensonde.vsix
	cd vscode && npm install --no-audit --no-fund --silent && npm run --silent test && npm run --silent package

web-test: web ## the UI's unit tests, and the UI in a real Chromium (skipped where there is none)
	@if [ -d web/node_modules ]; then cd web && npm run --silent check && npm run --silent test; else echo "web-test: no Node, unit tests of the UI skipped"; fi
	$(BIN)/python -m pytest tests/browser $(TESTS)

screenshots: web ## the pictures in docs/images, from a real run
	$(BIN)/python scripts/screenshots.py

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python benchmarks/digest.py
	$(BIN)/python benchmarks/peers.py $(VENV)/peers
	$(BIN)/python benchmarks/overhead.py --peers $(VENV)/peers
	$(BIN)/python benchmarks/short_steps.py
	$(BIN)/python benchmarks/whole_runs.py
	$(BIN)/python benchmarks/dump.py
	$(BIN)/python benchmarks/compiled.py
	$(BIN)/python benchmarks/hub.py

profile: setup ## where a step's instructions go, by callgrind, and what a model of the cost predicts; needs valgrind
	$(BIN)/python benchmarks/instructions.py $(PROFILE)

corpus: setup ## every bug of the corpus, its mended twin and the healthy scripts under tensonde run
	$(BIN)/python corpus/run.py $(CORPUS)

mutants: setup ## mistakes in programs that no rule was written for, under tensonde run
	$(BIN)/python corpus/mutants/score.py $(MUTANTS)

pairs: setup ## every pair of the corpus under tensonde compare, and equal ones
	$(BIN)/python corpus/compare.py $(PAIRS)
	$(BIN)/python corpus/compare.py --equal $(PAIRS)

porting: setup $(MINDSPORE)/.ready ## PyTorch originals and their MindSpore ports under tensonde compare
	$(BIN)/python corpus/compare.py --porting $(MINDSPORE)/bin/python $(PORTING)

docs: setup
	$(PIP) --constraint constraints/dev.txt --group docs
	$(BIN)/mkdocs build --strict

wheel: setup web ## a wheel that package indexes accept, in dist/; checked by auditwheel and installed in an empty environment
	$(PIP) --constraint constraints/dev.txt --group wheel
	rm -rf build/wheel dist/*.whl
	TENSONDE_KERNEL=require TENSONDE_WEB=require $(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir build/wheel .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	$(PYTHON) -m venv --clear build/wheel/env
	build/wheel/env/bin/python -m pip --disable-pip-version-check install --quiet dist/*.whl
	cd build/wheel && env/bin/python -c "from tensonde.digest.kernel import isa; assert isa() != 'numpy'" && env/bin/tensonde --version

clean:
	rm -rf $(VENV) $(MINDSPORE) build site src/tensonde/digest/*.so src/tensonde/server/web web/node_modules
