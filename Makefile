# Everything a newcomer types. Needs only make and Python 3.11 to 3.14; the first target called sets up .venv.
PYTHON ?= python3
UV_VERSION := 0.13.7
EXTRAS := test,browser
BIN := .venv/bin
READY := .venv/.ready
.DEFAULT_GOAL := help
.PHONY: help run report test lint test-full bench explorer docs release constraints clean

help: ## list these targets
	@echo "manyheads: the theory of training multi-head attention, made to run"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## all studies at quick scale and their page, in about four minutes (ARGS="scaling --scale full" runs one at length)
	@$(BIN)/python -m studies $(ARGS)

report: $(READY) ## docs/report: all studies at full scale (half an hour; interrupt it, the same command resumes)
	@$(BIN)/python -m studies --scale full --page docs/report $(ARGS)

test: $(READY) ## the tests, about six minutes (ARGS=tests/cli runs some)
	@$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(READY) ## formatting, lint, types, and which room may import which
	@$(BIN)/ruff check --output-format concise .
	@$(BIN)/ruff format --check .
	@$(BIN)/ty check
	@$(BIN)/lint-imports --no-logo

test-full: $(READY) ## all tests at full depth, the browser's too, under 60 minutes
	@XLA_FLAGS= $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "full or not full" $(ARGS)

bench: $(READY) ## the benchmarks, one after another (BENCH=benchmarks/bench_step.py runs one)
	@for file in $(or $(BENCH),$(sort $(wildcard benchmarks/bench_*.py))); do echo "== $$file" >&2; $(BIN)/python $$file $(ARGS) || exit 1; done

explorer: $(READY) ## build docs/explorer/index.html, the page that trains in the browser
	@$(BIN)/python explorer/build.py

docs: .venv/.docs ## check links and examples, then build the pages into site/index.html
	@$(BIN)/pytest -q tests/test_docs.py
	@$(BIN)/python docs/make_api.py
	@$(BIN)/zensical build --strict >/dev/null
	@echo "site/index.html"

release: $(READY) ## build sdist and wheel, install the wheel in an empty environment and run the README there
	@rm -rf dist
	@$(BIN)/hatchling build >/dev/null
	@$(BIN)/python docs/check_release.py

constraints: $(READY) ## resolve the pinned versions anew (for maintainers)
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --no-header --no-annotate \
		pyproject.toml -o constraints.txt

clean: ## remove the environment, caches and builds; results are kept
	@rm -rf .venv build dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null || { \
		echo "error: manyheads needs Python 3.11 to 3.14, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing): try 'make PYTHON=python3.12 ...'" >&2; exit 1; }
	@echo "setting up .venv (about a minute the first time)" >&2
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[$(EXTRAS)]' || { \
		echo "uv could not install; trying pip, which reads its own settings (a few minutes)" >&2; \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'; }
	@$(BIN)/python -m compileall -q src
	@touch $@

.venv/.docs: $(READY)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[docs]' || \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@
