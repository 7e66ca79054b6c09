# The front door of the CMake build. `make help` lists the targets.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
# Passed to CMake when BUILD is configured: make CMAKE_FLAGS=-DCMAKE_C_COMPILER=clang
CMAKE_FLAGS ?=
export JOBS
# Ninja keeps all cores busier than make does, so it is taken where it is installed.
NINJA = $(if $(CMAKE_GENERATOR),,$(if $(shell command -v ninja 2>/dev/null),-G Ninja))
generator_for = $(if $(wildcard $(1)/CMakeCache.txt),,$(NINJA))
MAKEFLAGS += --no-print-directory

CONFIGURED = $(BUILD)/.configured
COMPILE = cmake --build $(BUILD) -j $(JOBS) --target
C_FILES = $(shell find core ops backends support io nn optim data metrics dist cli tests examples bench include tools -name '*.[ch]' 2>/dev/null)

.PHONY: all lib test capture-long cuda test-cuda test-webgpu test-dist test-arm demo bench bench-peers asan sanitize-quick fuzz-ops fuzz-api tsan abi abi-save debug fmt lint install clean new-op help

all: $(CONFIGURED)  ## the library, the module for WebGPU where webgpu.h is found, and the cotangent command
	@$(COMPILE) cotangent cotangent_static cotangent_cli ct_modules

lib: $(CONFIGURED)  ## the library alone
	@$(COMPILE) cotangent cotangent_static

$(CONFIGURED):
	@bash tools/setup.sh --check build
	@cmake -S . -B $(BUILD) $(call generator_for,$(BUILD)) $(CMAKE_FLAGS)
	@touch $@

test:  ## every test; installs what is missing; the last line is the sum
	@bash tools/setup.sh test $(BUILD)
	@$(MAKE) $(CONFIGURED)
	@cmake $(BUILD) >/dev/null
	@$(COMPILE) all
	@bash tests/run.sh all $(BUILD) $(TEST_ARGS)

capture-long: all  ## captured training of every recipe's model over 200 steps against eager steps, bit for bit; several minutes
	@CAPTURE_STEPS=200 CT_BUILD_DIR=$(abspath $(BUILD)) bash tests/check_train_capture.sh

cuda:  ## the module for NVIDIA devices, where nvcc is installed
	@$(MAKE) $(CONFIGURED)
	@cmake $(BUILD) >/dev/null
	@if $(COMPILE) help 2>/dev/null | grep cotangent_cuda >/dev/null; then $(COMPILE) cotangent_cuda; \
		else cmake -N -L $(BUILD) >/dev/null; echo "skipped: CUDA's compiler, nvcc, is not installed"; fi

test-cuda: cuda  ## every op and what only a device can show, on an NVIDIA device; skips where there is none
	@$(COMPILE) cuda_tests
	@mkdir -p $(BUILD)/tests/results
	@CT_BUILD_DIR=$(abspath $(BUILD)) bash tests/cuda.sh >$(BUILD)/tests/results/cuda.log 2>&1; status=$$?; \
		cat $(BUILD)/tests/results/cuda.log; tail -n 1 $(BUILD)/tests/results/cuda.log >$(BUILD)/tests/results/summary; exit $$status

test-webgpu:  ## every op and what only WebGPU can show, by drivers that need no GPU; installs what is missing, skips what cannot be had
	@bash tools/setup.sh webgpu $(BUILD)
	@$(MAKE) $(CONFIGURED)
	@cmake $(BUILD) >/dev/null
	@$(COMPILE) webgpu_tests
	@mkdir -p $(BUILD)/tests/results
	@CT_BUILD_DIR=$(abspath $(BUILD)) bash tests/webgpu.sh >$(BUILD)/tests/results/webgpu.log 2>&1; status=$$?; \
		cat $(BUILD)/tests/results/webgpu.log; tail -n 1 $(BUILD)/tests/results/webgpu.log >$(BUILD)/tests/results/summary; exit $$status

test-dist:  ## several processes by Open MPI and MPICH; installs what is missing, skips what cannot be had
	@bash tools/setup.sh dist $(BUILD)
	@$(MAKE) $(CONFIGURED)
	@cmake $(BUILD) >/dev/null
	@$(COMPILE) dist_tests
	@mkdir -p $(BUILD)/tests/results
	@CT_BUILD_DIR=$(abspath $(BUILD)) bash tests/dist.sh >$(BUILD)/tests/results/dist.log 2>&1; status=$$?; \
		cat $(BUILD)/tests/results/dist.log; tail -n 1 $(BUILD)/tests/results/dist.log >$(BUILD)/tests/results/summary; exit $$status

# A cross build runs in an emulator, some twenty times slower: of each op the smallest samples, and what is about vectors and threads.
ARM = build-aarch64
test-arm:  ## each op's smallest samples on 64-bit ARM, emulated; installs what is missing, skips where it cannot be had
	@bash tools/setup.sh arm
	@mkdir -p $(ARM)/tests/results
	@if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! { command -v qemu-aarch64-static || command -v qemu-aarch64; } >/dev/null; then \
		echo "skipped: no compiler for 64-bit ARM, or no QEMU to run it (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)"; \
		echo "0 passed, 0 failed, 1 skipped" | tee $(ARM)/tests/results/summary; else \
		$(MAKE) $(ARM)/.configured BUILD=$(ARM) \
			CMAKE_FLAGS='-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DCT_CUDA=OFF -DCT_WEBGPU=OFF $(CMAKE_FLAGS)' && \
		cmake --build $(ARM) -j $(JOBS) --target arm_tests && bash tests/run.sh all $(ARM) -L arm; fi

DEVICE ?= cpu
FASHION = /usr/share/datasets/fashion-mnist
demo:  ## train a network on Fashion-MNIST in a few minutes, with a report; DEVICE=cuda or webgpu trains it there
	@bash tools/setup.sh $(if $(filter webgpu%,$(DEVICE)),demo-webgpu,demo) $(BUILD)
	@$(MAKE) $(CONFIGURED)
	@cmake $(BUILD) >/dev/null
	@$(COMPILE) cotangent_cli ct_modules
	@$(if $(filter cuda%,$(DEVICE)),$(MAKE) cuda)
	@recipe=fashion-mnist-cnn; args=; if [ ! -d $(FASHION) ]; then recipe=shapes-cnn; \
		echo "Fashion-MNIST is not in $(FASHION) (Debian's package dataset-fashion-mnist): drawn shapes serve instead"; fi; \
		if [ "$(DEVICE)" = webgpu ] && $(BUILD)/bin/cotangent info | grep -E '^  webgpu(:0)? ' | grep -qE 'llvmpipe|SwiftShader'; then \
		recipe=shapes-cnn args="--set data.count=1000 --epochs 3"; echo "there is no GPU, but a driver that computes on the CPU: a few drawn shapes serve"; fi; \
		$(BUILD)/bin/cotangent train $$recipe --out $(BUILD)/runs/$$recipe-$$(date +%Y%m%d-%H%M%S) --device $(DEVICE) $$args $(DEMO_ARGS)

bench: all  ## the speed of the ops on this machine
	@$(BUILD)/bin/cotangent bench $(BENCH_ARGS)

bench-peers: all  ## the same beside other libraries, where they are installed
	@bash bench/peers.sh $(BUILD) $(BENCH_ARGS)

asan:  ## the tests under the address and undefined-behaviour sanitizers
	@$(MAKE) test BUILD=build-asan CMAKE_FLAGS='-DCMAKE_BUILD_TYPE=Debug -DCT_SANITIZE=address,undefined $(CMAKE_FLAGS)'

# A build that compiles fast: the kernels of the baseline and of one level of vector instructions.
QUICK = build-quick
sanitize-quick:  ## the fuzzers and each op's smallest samples under these, in a few minutes
	@bash tools/setup.sh test
	@$(MAKE) $(QUICK)/.configured BUILD=$(QUICK) CMAKE_FLAGS='-DCMAKE_BUILD_TYPE=Debug -DCT_SANITIZE=address,undefined -DCT_LEVELS=avx2,neon $(CMAKE_FLAGS)'
	@cmake --build $(QUICK) -j $(JOBS) --target quick_tests
	@bash tests/run.sh all $(QUICK) -L quick

CALLS ?= 2000000
SEED ?= 1
FUZZ = $(MAKE) build-asan/.configured BUILD=build-asan \
	CMAKE_FLAGS='-DCMAKE_BUILD_TYPE=Debug -DCT_SANITIZE=address,undefined $(CMAKE_FLAGS)' && \
	cmake --build build-asan -j $(JOBS) --target $(1) && bash tests/fuzz.sh build-asan/tests/$(1) $(CALLS) $(SEED) $(JOBS)
fuzz-ops:  ## CALLS=2000000 random calls of the ops from SEED=1 on, under both sanitizers
	@$(call FUZZ,fuzz_ops)

fuzz-api:  ## the same of every public function
	@$(call FUZZ,fuzz_api)

tsan:  ## the tests under the thread sanitizer
	@$(MAKE) test BUILD=build-tsan CMAKE_FLAGS='-DCMAKE_BUILD_TYPE=Debug -DCT_SANITIZE=thread $(CMAKE_FLAGS)'

abi: $(CONFIGURED)  ## whether programs of the last release run with these headers (needs abigail-tools)
	@$(COMPILE) ct_generated
	@bash tools/abi/abi.sh check $(BUILD); status=$$?; [ $$status -eq 77 ] || exit $$status

abi-save: $(CONFIGURED)  ## at a release: the interface as it is becomes what `make abi` compares with
	@$(COMPILE) ct_generated
	@bash tools/abi/abi.sh save $(BUILD)

debug:  ## the library and the command, for a debugger, in build-debug
	@$(MAKE) all BUILD=build-debug CMAKE_FLAGS='-DCMAKE_BUILD_TYPE=Debug $(CMAKE_FLAGS)'

fmt:  ## format the C files
	@clang-format -i $(C_FILES)

lint:  ## formatting, and every warning of clang as an error
	@clang-format --dry-run -Werror $(C_FILES)
	@cmake -S . -B build-lint $(call generator_for,build-lint) -DCMAKE_C_COMPILER=clang -DCT_WERROR=ON >/dev/null
	@cmake --build build-lint -j $(JOBS)

install: all  ## headers, libraries, command, pkg-config and CMake files, under PREFIX
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:  ## remove the build folders that make has made
	@rm -rf $(BUILD) build-asan build-quick build-tsan build-debug build-lint build-aarch64

new-op:  ## make new-op NAME=foo: a folder ops/foo to fill in
	@bash tools/new-op.sh $(NAME)

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 16
