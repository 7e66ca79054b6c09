#!/usr/bin/env bash
# The three ways to use the library from another project (tests/outside), against a tree installed in a temporary
# prefix: find_package, pkg-config, add_subdirectory.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cmake=${CMAKE:-cmake}
outside=$source_dir/tests/outside
prefix=$work/prefix
if [ -n "$sanitize" ]; then
    skip "all" "an instrumented library is not installed"
    finish
fi

check "the library installs" "$cmake" --install "$build_dir" --prefix "$prefix"
libdir=$(dirname "$(find "$prefix" -name 'libcotangent.so' | head -n 1)")
export LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

by_find_package() {
    "$cmake" -S "$outside/find_package" -B "$work/find_package" "-DCMAKE_PREFIX_PATH=$prefix" &&
        "$cmake" --build "$work/find_package" && "$work/find_package/outside" && "$work/find_package/outside_static"
}
by_pkg_config() {
    mkdir -p "$work/pkg_config" &&
        PKG_CONFIG_PATH=$libdir/pkgconfig make -C "$outside/pkg_config" "OUT=$work/pkg_config" "CC=$cc" &&
        "$work/pkg_config/outside"
}
# This one compiles the library again; unoptimised, since only the build is tested.
by_add_subdirectory() {
    "$cmake" -S "$outside/add_subdirectory" -B "$work/add_subdirectory" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-g0 &&
        "$cmake" --build "$work/add_subdirectory" -j "${JOBS:-2}" --target outside && "$work/add_subdirectory/outside"
}
moved() { mv "$prefix" "$work/moved" && prefix=$work/moved libdir=${libdir/prefix/moved} && LD_LIBRARY_PATH=$libdir by_pkg_config; }

check "find_package" by_find_package
if command -v pkg-config >/dev/null; then
    check "pkg-config" by_pkg_config
else
    skip "pkg-config" "not installed"
fi
check "add_subdirectory" by_add_subdirectory
if command -v pkg-config >/dev/null; then
    check "an installed tree can be moved" moved
else
    skip "an installed tree can be moved" "no pkg-config"
fi
finish
