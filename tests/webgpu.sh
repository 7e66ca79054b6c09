#!/usr/bin/env bash
# The module for WebGPU by two drivers that need no GPU, lavapipe and SwiftShader, whose limits differ: `make test-webgpu`. What cannot be had
# here is skipped, by name and with the reason.
#   tests/webgpu.sh [short]    short: what `make test` runs of it
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cotangent=$build_dir/bin/cotangent
tests=$build_dir/tests
jobs=${JOBS:-2}
short=${1:-}
export CT_BACKEND_PATH=$build_dir/lib
export NODEVICE_SELECT=1 # a layer of Mesa's that asks Wayland which GPU shows the screen
# Most of lavapipe's time is that of its compiler: what it has compiled is kept, and it optimizes little. The jobs are the parallelism.
export MESA_SHADER_CACHE_DIR=$tests/mesa LP_NUM_THREADS=1 GALLIVM_PERF=nopt LP_NATIVE_VECTOR_WIDTH=128
cd "$work" || exit 1

missing() { "$cotangent" info | sed -n 's/^webgpu *//p'; }
lavapipe=$(ls /usr/share/vulkan/icd.d/lvp_icd*.json 2>/dev/null | head -n 1)
swiftshader=/usr/lib/chromium/vk_swiftshader_icd.json
[ -e $swiftshader ] || swiftshader=
driver() { export VK_ICD_FILENAMES=$1 VK_DRIVER_FILES=$1; }

# Few ops of every kind, for `make test`.
kinds="add where exp convert cat gather scatter_add sum cumsum sort softmax layer_norm cross_entropy_loss matmul conv conv_weight_grad max_pool2d
    randperm dropout optim_adam"
# Some whose steps and gradients are fused when they are captured.
captured="dropout gelu smooth_l1_loss log_softmax layer_norm lerp convert"
sweep() { # OPTIONS AND OPS...
    CT_WEBGPU_DUMP=$work/texts "$cotangent" check --device webgpu --jobs "$jobs" "$@"
}
mkdir -p texts

programs=$(cd "$tests" && ls test_webgpu* | grep -v _coverage)

# by NAME ICD: the name of a driver, and of all that is tried with it.
by() {
    local name=$1
    if [ -z "$2" ]; then
        skip "every op by $name" "its driver is not installed"
        return 1
    fi
    driver "$2"
    local why
    why=$(missing)
    if [ "$why" != yes ]; then
        skip "every op by $name" "$why"
        return 1
    fi
}
# `make test` runs the programs by the first driver that there is, lavapipe where it is installed. Texts of fused calls are written for each: a
# browser is to compile those of the test, too.
run_programs() {
    local program folder
    for program in $programs; do
        [ "$program" = test_webgpu_fused ] && folder=$work/texts || folder=
        check "$program by $1" env CT_WEBGPU_DUMP="$folder" "$tests/$program"
    done
}

# ---- The module alone ----

older() {
    echo 'void wgpuAdapterRequestDevice2(void) {}' >older.c && "$cc" -shared -fPIC older.c -o older.so &&
        CT_WEBGPU_LIBRARY=$work/older.so missing | grep "no: the WebGPU runtime is older than the standard header"
}
case $(missing) in
"no: there is no module"*) skip "every primitive has a kernel" "the module is not built: webgpu.h was not found" ;;
*)
    check "every primitive has a kernel" "$tests/test_webgpu_coverage"
    check "a runtime older than the standard header is refused" older
    ;;
esac

# ---- Lavapipe: the whole sweep ----

# A recipe, with the loader, the checkpoints and the report around it, follows that on the CPU: sums in another order differ by rounding,
# which training makes larger.
trains_alike() { # NAME RECIPE OPTIONS...
    local name=$1 recipe=$2 device
    shift 2
    for device in cpu webgpu; do
        "$cotangent" train "$recipe" --out "$name-$device" --device "$device" --epochs 1 "$@" || return 1
    done
    paste <(curve "$name-cpu" | sed 's/.* //') <(curve "$name-webgpu" | sed 's/.* //') |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 0.02 * $1 + 0.01)) { print; bad++ } n++ } END { print n + 0, bad + 0; exit !(n > 2 && bad <= n / 10) }'
}
trains() { check "$1 trains on WebGPU" trains_alike "$@"; }
has_recipes() { grep -q 'CT_HEADER_LIBYAML.*=1' "$build_dir/CMakeCache.txt" && grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt"; }

if by lavapipe "$lavapipe"; then
    # shellcheck disable=SC2086 # a list of names
    if [ -n "$short" ]; then
        check "an op of every kind by lavapipe" sweep --values --gradients --smallest $kinds
    else
        check "every op by lavapipe" sweep --values --wide
        check "every gradient at its smallest by lavapipe" sweep --gradients --wide --smallest
        check "captured calls by lavapipe" sweep --capture --smallest $captured
        # Drivers that compute on a CPU have kernels of their own for these.
        as_for_a_gpu() { CT_WEBGPU_AS_GPU=1 sweep "$@"; }
        check "products and convolutions as for a GPU by lavapipe" as_for_a_gpu --values --gradients --smallest \
            matmul linear linear_fused linear_grad conv conv_fused conv_input_grad conv_weight_grad
        check "300 random convolutions by lavapipe" env CT_TEST_CONVOLUTIONS=300 "$tests/test_webgpu_conv"
        check "random calls by lavapipe" env FUZZ_DEVICE=webgpu "$tests/fuzz_ops" "${CALLS:-500}" 2
    fi
    if has_recipes; then
        . "$source_dir/tests/small_data.sh"
        trains shapes-cnn shapes-cnn --set data.count=60 --batch 12
        if [ -z "$short" ]; then
            trains shapes-unet shapes-unet --set data.count=12 --set data.size=16 --batch 4 --set model.levels=2 --set model.base=4
            trains fashion-mnist-mlp fashion-mnist-mlp --data mnist --batch 8
            trains cifar-vit cifar-vit --data cifar --batch 6 --set model.layers=1 --set model.dim=32 --set model.heads=2
            trains csv-classification csv-classification --data kinds.csv --batch 12
            trains csv-regression csv-regression --data sizes.csv --batch 12
            trains char-lstm char-lstm --data text.txt --batch 8 --set model.hidden=24 --set data.limit=20
            trains char-gpt char-gpt --data text.txt --batch 8 --set model.layers=1 --set model.dim=16 --set model.heads=2 --set data.length=16 --set data.limit=40
            trains f16 shapes-cnn --set data.count=60 --batch 12 --set precision=f16 --set clip_norm=1 --set ema=0.9
            trains lamb csv-classification --data kinds.csv --batch 12 --set 'optimizer={name: lamb}' --set clip_norm=1
        fi
    else
        skip "recipes train on WebGPU" "this build has no libyaml or no jansson"
    fi
fi

# ---- SwiftShader: its limits are lower, its compiler slower ----

if by SwiftShader "$swiftshader"; then
    # shellcheck disable=SC2086 # a list of names
    if [ -n "$short" ]; then
        check "some ops by SwiftShader" sweep --values --gradients --smallest add gather sum softmax matmul
    else
        run_programs SwiftShader
        check "every op at its smallest by SwiftShader" sweep --values --wide --smallest
        check "every gradient at its smallest by SwiftShader" sweep --gradients --wide --smallest
    fi
fi

# ---- Both ----

if [ -n "$lavapipe" ] && [ -n "$swiftshader" ]; then
    driver "$lavapipe:$swiftshader"
    both() { "$tests/test_webgpu_guest" two_devices_are_used_at_once | tee both.txt && ! grep -q skipped both.txt; }
    if [ "$(missing)" = yes ]; then
        check "two devices are used at once" both
    fi
else
    skip "two devices are used at once" "there are not two drivers"
fi

# ---- A browser ----

browser() {
    python3 "$source_dir/tests/webgpu/browser.py" texts 300
    status=$?
}
if [ -n "$short" ]; then
    :
elif [ -z "$(ls texts)" ]; then
    skip "a browser compiles every text" "there is no device to collect them with"
elif ! command -v python3 >/dev/null; then
    skip "a browser compiles every text" "there is no python3"
else
    browser >browser.txt 2>&1
    if [ "$status" -eq 77 ]; then
        skip "a browser compiles every text" "$(cat browser.txt)"
    else
        cat browser.txt
        check "a browser compiles every text" [ "$status" -eq 0 ]
    fi
fi
finish
