# Targets: run, test, check, bench. Each says what it does and installs what it lacks.
export GOFLAGS ?= -mod=readonly
GO ?= go
BIN := bin/sluis
RUN_ARGS ?=

.PHONY: run build test check bench generate tools-run tools-test help

help:
	@echo "make run    build and start the demo (RUN_ARGS='--fresh' starts over)"
	@echo "make test   install what the tests need and run all of them with the race detector"
	@echo "make check  format, vet, staticcheck, templ, schema, traces, import directions"
	@echo "make bench  measure the gate, the dashboard and the planner as ratios"

# A newcomer's command: whatever is missing is named and installed first.
run: tools-run build
	@exec $(BIN) demo $(RUN_ARGS)

build:
	@echo "building $(BIN) (the first build takes a minute or two)"
	@$(GO) build -o $(BIN) ./cmd/sluis

tools-run:
	@sh .ci/install run

tools-test:
	@sh .ci/install test

test: tools-test
	$(GO) test -race -timeout 25m ./...

check:
	@sh .ci/check

bench: tools-run
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./cmd/sluis

generate:
	$(GO) tool templ generate
	$(GO) run ./migrations/dump -write
	$(GO) run ./gate/sandbox/trace/generate -write
