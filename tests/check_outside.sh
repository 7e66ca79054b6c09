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

# README's own program and commands, in a home of their own. Only make is told where the source and the build are.
awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$source_dir/README.md" >"$work/program.c"
awk '/^    make install/ {on = 1} on && !/^    / {exit} on' "$source_dir/README.md" >"$work/commands"
as_in_readme() (
    mkdir -p "$work/home" && cd "$work" || return 1
    export HOME=$work/home
    make() { command make -C "$source_dir" BUILD="$build_dir" "$@"; }
    set -e
    cat commands
    . ./commands
    "$HOME/.local/bin/cotangent" info
)
if command -v pkg-config >/dev/null; then
    check "README's commands work as they stand" as_in_readme
else
    skip "README's commands work as they stand" "no pkg-config"
fi

check "the library installs" "$cmake" --install "$build_dir" --prefix "$prefix"
libdir=$(dirname "$(find "$prefix" -name 'libcotangent.so' | head -n 1)")
export LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

for_cpp() {
    printf '#include <cotangent.hpp>\nint main() { return ct::sum(ct::ones({2, 3})).item() != 6; }\n' >"$work/installed.cc"
    g++ -std=c++17 "$work/installed.cc" "-I$prefix/include" "-L$libdir" -lcotangent -o "$work/installed" && "$work/installed"
}
if command -v g++ >/dev/null; then check "a C++ program uses the installed header" for_cpp; else skip "a C++ program" "no g++"; fi

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
# The page on debugging, with that build: it is a debug one. Each line after a command has to be in what it prints, where
# ... stands for anything.
compile_debug() {
    "$cc" -std=c11 -g "-I$source_dir/include" "-I$work/add_subdirectory/cotangent/generated/include" "$1" -o "$2" \
        "-L$debug_lib" -lcotangent "-Wl,-rpath,$debug_lib"
}
console() {
    local command=$1 expected=$2 line pattern
    [[ $command == gdb* ]] && ! command -v gdb >/dev/null && return 0
    (cd "$work" && LD_LIBRARY_PATH=$debug_lib bash -c "$command" >console.txt 2>&1)
    while IFS= read -r line; do
        pattern=$(sed 's/[][\.*^$+?(){}|]/\\&/g; s/\(\\\.\)\{3\}/.*/g' <<<"$line")
        grep -Eq -- "$pattern" "$work/console.txt" || { echo "no line '$line' in:" && cat "$work/console.txt" && return 1; }
    done <<<"$expected"
}
debugging_page() {
    local page=$source_dir/docs/debugging.md line command="" expected="" on=false
    debug_lib=$(dirname "$(find "$work/add_subdirectory" -name 'libcotangent.so' | head -n 1)")
    awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$page" >"$work/program.c"
    awk '/^```c use after release$/ {on = 1; next} /^```$/ {on = 0} on' "$page" >"$work/released.c"
    check "the programs of docs/debugging.md compile" eval 'compile_debug "$work/program.c" "$work/program" && compile_debug "$work/released.c" "$work/released"'
    while IFS= read -r line; do
        case $line in
        '```console') on=true command="" ;;
        '```') on=false ;;
        *) $on && if [ -z "$command" ]; then command=${line#\$ } expected=""; else expected+=${expected:+$'\n'}$line; fi ;;
        esac
        if ! $on && [ -n "$command" ]; then
            check "docs/debugging.md: $command" console "$command" "$expected"
            command=""
        fi
    done <"$page"
}
moved() { mv "$prefix" "$work/moved" && prefix=$work/moved libdir=${libdir/prefix/moved} && LD_LIBRARY_PATH=$libdir by_pkg_config; }

check "find_package" by_find_package
if command -v pkg-config >/dev/null; then
    check "pkg-config" by_pkg_config
else
    skip "pkg-config" "not installed"
fi
check "add_subdirectory" by_add_subdirectory
debugging_page
if command -v pkg-config >/dev/null; then
    check "an installed tree can be moved" moved
else
    skip "an installed tree can be moved" "no pkg-config"
fi
finish
