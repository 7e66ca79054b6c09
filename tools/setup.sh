#!/usr/bin/env bash
# Installs what a make target needs and this machine lacks, on Debian and Ubuntu; does nothing when all is there.
#   tools/setup.sh [--check] build|test|demo|webgpu|demo-webgpu|dist|arm [BUILD]
# --check only says what is missing. Elsewhere than on Debian the list is printed and the exit status is 1. The runtime of WebGPU
# goes to BUILD/webgpu, since no package of Debian has one.
set -u

check_only=false
if [ "${1:-}" = --check ]; then
    check_only=true
    shift
fi
goal=${1:-build} build=${2:-build}

required=() optional=()
have() { command -v "$1" >/dev/null 2>&1; }
have_c_library() { echo '#include <stdio.h>' | "${CC:-cc}" -E - >/dev/null 2>&1; }

have cc || have "${CC:-gcc}" || required+=(gcc)
have_c_library || required+=(libc6-dev)
have cmake || required+=(cmake)
have make || required+=(make)
# Images, compressed files, JSON and YAML are left out where the headers of these are missing.
have_header() { echo "#include <$1>" | "${CC:-cc}" -E - >/dev/null 2>&1; }
files() {
    have_header zlib.h || optional+=(zlib1g-dev)
    have_header zip.h || optional+=(libzip-dev)
    have_header png.h || optional+=(libpng-dev)
    have_header turbojpeg.h || optional+=(libturbojpeg0-dev)
    have_header jansson.h || optional+=(libjansson-dev)
    have_header yaml.h || optional+=(libyaml-dev)
}
# WebGPU: a driver for Vulkan that needs no GPU, and the loader; of the tests, another one that comes with Chromium, and Chromium.
driver() {
    ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1 || optional+=(mesa-vulkan-drivers)
    ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' || [ -e /usr/lib/"$(uname -m)"-linux-gnu/libvulkan.so.1 ] || optional+=(libvulkan1)
}
wants_runtime=false
case $goal in
build) ;;
webgpu)
    files
    driver
    wants_runtime=true
    have chromium || optional+=(chromium)
    [ -e /usr/lib/chromium/vk_swiftshader_icd.json ] || optional+=(chromium-common)
    ;;
dist)
    files
    have mpicc.openmpi || optional+=(libopenmpi-dev)
    have mpirun.openmpi || optional+=(openmpi-bin)
    have mpicc.mpich || optional+=(libmpich-dev)
    have mpirun.mpich || optional+=(mpich)
    have ip || optional+=(iproute2)
    ;;
demo-webgpu)
    files
    # a GPU's own driver serves as well
    ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json >/dev/null 2>&1 || driver
    wants_runtime=true
    [ -d /usr/share/datasets/fashion-mnist ] || optional+=(dataset-fashion-mnist)
    ;;
test)
    files
    driver
    wants_runtime=true
    # The checks of the header with other compilers, and of pkg-config, are skipped where these are missing.
    have g++ || optional+=(g++)
    have clang || optional+=(clang)
    have pkg-config || optional+=(pkg-config)
    ;;
arm) # a compiler for 64-bit ARM, its C library, and what runs it here
    have aarch64-linux-gnu-gcc || optional+=(gcc-aarch64-linux-gnu)
    [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || optional+=(libc6-dev-arm64-cross)
    have qemu-aarch64-static || have qemu-aarch64 || optional+=(qemu-user-static)
    ;;
demo)
    files
    have gzip || optional+=(gzip)
    [ -d /usr/share/datasets/fashion-mnist ] || optional+=(dataset-fashion-mnist)
    ;;
*)
    echo "usage: tools/setup.sh [--check] build|test|demo|webgpu|demo-webgpu|dist|arm [BUILD]" >&2
    exit 2
    ;;
esac
[ -z "${CT_WEBGPU_LIBRARY:-}" ] || wants_runtime=false

# The wheel `wgpu` of PyPI has wgpu-native and the header webgpu.h: both go to BUILD/webgpu/wgpu/resources. Without Python or a network
# WebGPU is left out, and its tests say so.
runtime() {
    local to=$build/webgpu
    ! $wants_runtime || [ -e "$to/wgpu/resources/webgpu.h" ] && return
    if ! have python3; then
        echo "no python3 to fetch wgpu-native with: WebGPU is left out" >&2
        return
    fi
    echo "fetching: wgpu-native (the wheel wgpu of PyPI)"
    mkdir -p "$to" && python3 "$(dirname "${BASH_SOURCE[0]}")/fetch_wgpu.py" "$to" || echo "could not fetch wgpu-native; going on without WebGPU" >&2
}

if [ ${#required[@]} -eq 0 ] && [ ${#optional[@]} -eq 0 ]; then
    $check_only || runtime
    exit 0
fi

if $check_only; then
    if [ ${#required[@]} -gt 0 ]; then
        echo "missing: ${required[*]} (Debian names). 'make test' and 'make demo' install them; or: apt-get install ${required[*]}" >&2
        exit 1
    fi
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
if ! have apt-get || { [ "$(id -u)" -ne 0 ] && ! have sudo; }; then
    [ ${#optional[@]} -eq 0 ] || echo "not found, and not required: ${optional[*]}" >&2
    if [ ${#required[@]} -gt 0 ]; then
        echo "please install (Debian names): ${required[*]}" >&2
        exit 1
    fi
    runtime
    exit 0
fi

install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >/tmp/cotangent-setup.$$ 2>&1; }
# The package lists are refreshed only when an installation fails with those that are there.
updated=false
try_install() {
    install "$@" && return 0
    if ! $updated; then
        updated=true
        "${as_root[@]}" apt-get update -q >/dev/null 2>&1
        install "$@" && return 0
    fi
    return 1
}

status=0
if [ ${#required[@]} -gt 0 ]; then
    echo "installing: ${required[*]}"
    if ! try_install "${required[@]}"; then
        cat /tmp/cotangent-setup.$$ >&2
        echo "could not install: ${required[*]}" >&2
        status=1
    fi
fi
for package in "${optional[@]}"; do
    echo "installing: $package"
    try_install "$package" || echo "could not install $package; going on without it" >&2
done
rm -f /tmp/cotangent-setup.$$
runtime
exit $status
