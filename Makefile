# Proctor's build. `make help` lists the targets.
#
# On Debian 12 with Go: `sudo make demo`, `sudo make test`. Under sudo, compilers run as the
# owner of this tree (scripts/as-owner); only what needs root runs as root.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
CC ?= cc
CLANG ?= clang-19
# Images that `make images` builds, by the names of their recipes.
IMAGES ?= python-data shell

# Found when first used, so that targets without Go work without it.
GO = $(eval GO := $$(shell scripts/find-go))$(GO)
VERSION = $(eval VERSION := $$(shell scripts/version))$(VERSION)

# The version is passed by -ldflags: -buildvcs runs git, which refuses another user's tree. What
# is built, tested and linted with the same flags shares one build cache, so these hold for all.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -buildvcs=false)
export CGO_ENABLED := 0

STEP := scripts/step
AS_OWNER := scripts/as-owner
TOOLS := tools/go.mod tools/go.sum

##@ Use

.PHONY: demo
demo: build images ## run an honest and an injected script in boxes and show what Proctor says (root)
	@scripts/demo.sh

.PHONY: build
build: bin/proctor bin/proctor-gateway bin/proctor-init bin/containerd bin/runc ## build bin/proctor and all it needs in bin/

.PHONY: images
images: bin/proctor | deps root ## build the images into build/images, unless they are up to date (root)
	@$(AS_OWNER) mkdir -p build
	@$(STEP) "building images: $(IMAGES) (first time about 2 min)" bin/proctor images build --dir build/images $(IMAGES)

.PHONY: install
install: build ## install into $(DESTDIR)$(PREFIX), by default /usr/local
	@install -d $(LIB) $(DESTDIR)$(PREFIX)/bin $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions
	@install -m 0755 $(addprefix bin/,$(INSTALLED)) $(LIB)
	@ln -sfn ../lib/proctor/proctor $(DESTDIR)$(PREFIX)/bin/proctor
	@bin/proctor man | install -m 0644 /dev/stdin $(SHARE)/man/man1/proctor.1
	@bin/proctor completion bash | install -m 0644 /dev/stdin $(SHARE)/bash-completion/completions/proctor
	@bin/proctor completion zsh | install -m 0644 /dev/stdin $(SHARE)/zsh/site-functions/_proctor
	@echo "installed proctor $(VERSION) in $(DESTDIR)$(PREFIX)"

# For Debian's architecture of this machine; dist/ gets the package.
.PHONY: deb
deb: build bin/tools/nfpm ## make a Debian package in dist/
	@rm -rf build/deb
	@$(AS_OWNER) $(MAKE) --no-print-directory -s install DESTDIR=build/deb PREFIX=/usr >/dev/null
	@$(AS_OWNER) install -d build/deb/usr/share/proctor build/deb/usr/share/zsh/vendor-completions dist
	@$(AS_OWNER) mv build/deb/usr/share/zsh/site-functions/_proctor build/deb/usr/share/zsh/vendor-completions/ && rmdir build/deb/usr/share/zsh/site-functions
	@$(AS_OWNER) cp supervisor/profile/schema.json build/deb/usr/share/proctor/profile.schema.json
	@$(AS_OWNER) gzip -9nf build/deb/usr/share/man/man1/proctor.1
	@$(STEP) "packing" $(AS_OWNER) env DEB_ARCH=$$(dpkg --print-architecture) DEB_VERSION=$$(scripts/version deb) \
		bin/tools/nfpm package --packager deb --config packaging/deb/nfpm.yaml --target dist/
	@ls dist/*.deb

# How many runs: make soak RUNS=10000.
.PHONY: soak
soak: RUNS := 2000
soak: build images bin/tools/gotestsum | deps-test root ## run 2,000 programs, a fifth of them hostile, and count what grows (root, long)
	@$(AS_OWNER) mkdir -p build/soak
	@GO=$(GO) RUNS=$(RUNS) scripts/gotest soak; status=$$?; cat build/soak/table.txt; exit $$status

.PHONY: test-deb
test-deb: deb | root ## install the Debian package into a root of its own, and purge it (root)
	@scripts/test-deb "$$(ls -t dist/*.deb | head -1)"

# proctor looks for the others beside its own executable, of which bin/ gets a link.
INSTALLED := proctor proctor-gateway proctor-init containerd containerd-shim-runc-v2 runc
LIB := $(DESTDIR)$(PREFIX)/lib/proctor
SHARE := $(DESTDIR)$(PREFIX)/share

##@ Test

# Tests of some packages only: make test PKG=./images/...
export PKG ?= ./...

.PHONY: test
test: build images bin/tools/gotestsum | prometheus ## run all tests, unit and root (root)
	@GO=$(GO) scripts/gotest unit
	@GO=$(GO) scripts/gotest root

# What alarms and metrics are tried against.
.PHONY: prometheus
prometheus: | deps-test
	@$(STEP) "getting Prometheus and Alertmanager" scripts/prometheus

.PHONY: test-unit
test-unit: bin/tools/gotestsum | go ## run the tests that need no root and nothing built
	@GO=$(GO) scripts/gotest unit

.PHONY: test-race
test-race: build build/race/proctor bin/tools/gotestsum | prometheus ## run the tests with the race detector; those that need root only as root
	@GO=$(GO) scripts/gotest race

.PHONY: test-kernels
test-kernels: bin/tools/gotestsum | go deps-kernels ## run the tests of the eBPF programs under Debian 12's Linux 6.1, in a virtual machine
	@GO=$(GO) scripts/gotest kernels

.PHONY: test-ordinary
test-ordinary: build images bin/tools/gotestsum | deps-test ## run CPython's own tests, other languages, and 1,000 pandas runs in boxes (root, long)
	@$(STEP) "building the image with other languages" bin/proctor images build --dir build/ordinary --recipes testenv/ordinary/images ordinary
	@GO=$(GO) scripts/gotest ordinary

.PHONY: test-oracle
test-oracle: build bin/tools/gotestsum | deps-test root ## hold what is recorded of everyday programs against what strace sees (root, long)
	@$(STEP) "building the image with the oracle's programs" bin/proctor images build --dir build/oracle --recipes testenv/oracle/images oracle
	@GO=$(GO) scripts/gotest oracle

.PHONY: test-clients
test-clients: build bin/tools/gotestsum | deps-test root ## have real clients reach what is granted: Python, Node, Java, Go, curl, git, psql (root)
	@scripts/deps clients
	@$(STEP) "building the image with clients" bin/proctor images build --dir build/clients --recipes testenv/clients/images clients
	@GO=$(GO) scripts/gotest clients

.PHONY: bench
bench: build images build/bench/nginx | deps-bench ## measure what a run costs, against containerd alone, nothing watching, socat and nginx (root)
	@$(STEP) "building the image with what is measured in a box" bin/proctor images build --dir build/oracle --recipes testenv/oracle/images oracle
	@GO=$(GO) scripts/gotest bench

.PHONY: lint
lint: bin/tools/golangci-lint | go ## check style, mistakes and the arrows between packages
	@$(AS_OWNER) env PATH="$(dir $(GO)):$$PATH" bin/tools/golangci-lint run ./...

.PHONY: generate
generate: | go deps-generate ## regenerate what bpf2go makes of bpf/
	@$(STEP) "compiling the BPF programs" $(GENERATE)

.PHONY: generate-check
generate-check: | go deps-generate ## fail if `make generate` would change a file
	@scripts/generate-check $(GENERATE)

GENERATE = $(AS_OWNER) env PATH="$(dir $(GO)):$$PATH" BPF_CLANG=$(CLANG) $(GO) generate ./...

##@ Housekeeping

.PHONY: deps
deps: ## install the Debian packages that building needs, if any is missing (root, if so)
	@scripts/deps build image

.PHONY: deps-test
deps-test: | deps ## the same for testing
	@scripts/deps test

.PHONY: deps-bench
deps-bench: | deps-test ## the same for benchmarks
	@scripts/deps bench

.PHONY: deps-kernels
deps-kernels: ## the same for virtual machines
	@scripts/deps kernels

.PHONY: deps-generate
deps-generate: ## the same for compiling the BPF programs
	@scripts/deps generate

.PHONY: clean
clean: ## remove bin/, build/ and what the demo left, mounts included
	@scripts/clean

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "First: sudo make demo"

# --- what follows is built, not called ---

.PHONY: go root
go:
	@test -n '$(GO)'

root:
	@if ((EUID != 0)); then echo "proctor: this needs root: run 'sudo make $(MAKECMDGOALS)'" >&2; exit 1; fi

# Under sudo, folders that an earlier make without sudo's help left to root go to the owner.
.PHONY: dirs
dirs:
	@if ((EUID == 0)); then \
		mkdir -p bin/tools build; \
		owner=$$($(AS_OWNER) id -un); \
		if [[ $$owner != root ]]; then chown -h "$$owner:" build && chown -Rh "$$owner:" bin; fi; \
	else mkdir -p bin/tools build; fi

# Go decides what of it is out of date.
.PHONY: bin/proctor bin/proctor-gateway
bin/proctor: | deps go dirs
	@$(STEP) "building proctor (first time about 2 min)" $(AS_OWNER) \
		$(GO) build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/proctor ./cmd/proctor

# Static: it has no files to find a library in. The profile is scripts/profile-gateway's.
bin/proctor-gateway: | deps go dirs
	@$(STEP) "building proctor-gateway (first time about 1 min)" $(AS_OWNER) env CGO_ENABLED=0 \
		$(GO) build -pgo cmd/proctor-gateway/gateway.pgo -ldflags '-s -w' -o bin/proctor-gateway ./cmd/proctor-gateway

.PHONY: build/race/proctor
build/race/proctor: build | deps go dirs
	@$(AS_OWNER) mkdir -p build/race
	@$(AS_OWNER) ln -sf $(addprefix ../../bin/,$(filter-out proctor,$(INSTALLED)) ctr) build/race/
	@$(STEP) "building proctor with the race detector" $(AS_OWNER) env CGO_ENABLED=1 \
		$(GO) build -race -ldflags '-X main.version=$(VERSION)-race' -o build/race/proctor ./cmd/proctor

bin/proctor-init: $(wildcard supervisor/box/init/*.c supervisor/box/init/*.h) | deps dirs
	@$(AS_OWNER) $(CC) -std=gnu11 -O2 -static -s -Wall -Wextra -Werror -o $@ $(filter %.c,$^)

bin/containerd bin/containerd-shim-runc-v2 bin/ctr &: $(TOOLS) | deps go dirs
	@$(STEP) "building containerd, its shim and ctr (first time about 2 min)" $(AS_OWNER) env -C tools \
		$(GO) build -tags 'no_btrfs no_devmapper no_zfs no_cri' -ldflags '-s -w' -o ../bin/ \
		$(addprefix github.com/containerd/containerd/v2/cmd/,containerd containerd-shim-runc-v2 ctr)
	@$(AS_OWNER) touch bin/containerd bin/containerd-shim-runc-v2 bin/ctr

bin/runc: $(TOOLS) | deps go dirs
	@$(STEP) "building runc (first time about 1 min)" $(AS_OWNER) env -C tools CGO_ENABLED=1 CC=$(CC) \
		$(GO) build -tags 'seccomp netgo osusergo' -ldflags '-s -w -extldflags -static' -o ../bin/runc \
		github.com/opencontainers/runc
	@$(AS_OWNER) touch $@

build/bench/nginx: | deps-bench dirs
	@$(STEP) "getting nginx" $(AS_OWNER) scripts/bench-nginx

bin/tools/gotestsum: $(TOOLS) | go dirs
	@$(STEP) "building gotestsum" $(AS_OWNER) env -C tools \
		$(GO) build -ldflags '-s -w' -o ../$@ gotest.tools/gotestsum
	@$(AS_OWNER) touch $@

bin/tools/nfpm: tools/deb/go.mod tools/deb/go.sum | go dirs
	@$(STEP) "building nfpm" $(AS_OWNER) env -C tools/deb \
		$(GO) build -ldflags '-s -w' -o ../../$@ github.com/goreleaser/nfpm/v2/cmd/nfpm
	@$(AS_OWNER) touch $@

bin/tools/golangci-lint: tools/lint/go.mod tools/lint/go.sum | go dirs
	@$(STEP) "building golangci-lint (first time about 4 min)" $(AS_OWNER) env -C tools/lint \
		$(GO) build -ldflags '-s -w' -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@$(AS_OWNER) touch $@
