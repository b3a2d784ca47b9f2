# `make demo` and `make test` are all a fresh machine needs: both make .venv themselves and need no root.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The base only, which is there in seconds: all that the demo needs.
LIGHT := $(if $(wildcard $(READY)),$(READY),$(VENV)/.light)
DEMO := build/demo
FULL ?=
# What to test: make test T=tests/unit/search/test_search.py
T ?=
EXTRAS ?= all,dev
# Test processes, each of one thread but where a test asks for more.
JOBS ?= 2

# Thousands of processes of the tests import the same modules: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check docs docs-release format install proto clean release-check

demo: $(LIGHT)
	@mkdir -p $(DEMO)
	@du -sm $(VENV) | awk '{print "installed: " $$1 " MB"}'
	$(BIN)/mvindex ingest examples/squad/passages.tsv --index $(DEMO)/squad.mvx
	$(BIN)/mvindex query --queries examples/squad/one_passage_three_views.tsv --index $(DEMO)/squad.mvx --top-k 1 --explain

test: $(READY)
	FULL=$(FULL) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(T)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, in build/site; a link, an anchor or a page that is missing ends it. Nothing is fetched while it is built.
docs: $(READY)
	@test -x $(BIN)/mkdocs || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Adds the site of a version to the branch gh-pages: make docs-release VERSION=0.3
docs-release: $(READY)
	@test -n "$(VERSION)" || (echo 'expected the version: make docs-release VERSION=0.3' >&2; exit 2)
	@test -x $(BIN)/mike || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	PATH=$(abspath $(BIN)):$$PATH NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy --update-aliases $(VERSION) latest
	$(BIN)/mike set-default latest

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The base, or what EXTRAS names: make install EXTRAS=fast,server
install: $(if $(filter command line environment,$(origin EXTRAS)),$(READY),$(LIGHT))

$(VENV)/.light: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .
	@touch $(VENV)/.light

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@# Python compiles what is imported; compiling all files of all packages takes as long as installing them.
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

# Builds what would be released, checks it, and runs the quickstart with each extra on each Python that is found.
# Choose some by PYTHONS=3.11,3.12 and EXTRAS=base,train; DRAFT=1 allows the placeholder of the project's address.
release-check: PYTHONS ?= 3.10,3.11,3.12,3.13
release-check:
	$(PYTHON) -m venv build/release-tools
	build/release-tools/bin/python -m pip install --quiet build cyclonedx-bom twine uv
	build/release-tools/bin/python .ci/release_check.py --pythons $(PYTHONS) \
	  $(if $(filter command line environment,$(origin EXTRAS)),--extras $(EXTRAS)) $(if $(DRAFT),--draft)

# The messages and stubs of the gRPC service, from their schema.
proto: $(READY)
	$(BIN)/python -m grpc_tools.protoc -Ischemas --python_out=. --pyi_out=. schemas/mvindex/v1/*.proto
	$(BIN)/python -m grpc_tools.protoc -Ischemas --grpc_python_out=. schemas/mvindex/v1/service.proto
