#!/usr/bin/env bash
# The shared library can be opened at run time, by a C host and by Python, which leave little room for thread-local data.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

library=$build_dir/lib/libcotangent.so
if [ -n "$sanitize" ]; then
    skip "opened at run time" "the sanitizer's runtime has to come first"
    finish
fi

c_host() {
    "$cc" -std=gnu11 -Wall -I"$source_dir/include" -I"$build_dir/generated/include" \
        "$source_dir/tests/outside/plugin_host.c" -o "$work/host" -ldl -lpthread && "$work/host" "$library"
}
check "a C program opens, uses, closes and opens it again" c_host

# Python's own libraries have taken a part of the room already; threads from before and after the opening use it.
python_host() {
    python3 - "$library" <<'PYTHON'
import ctypes, sys, threading

def use(lib, failures):
    lib.ct_scalar.restype = lib.ct_add.restype = ctypes.c_void_p
    lib.ct_scalar.argtypes = [ctypes.c_double, ctypes.c_int]
    lib.ct_add.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.ct_item.argtypes, lib.ct_item.restype = [ctypes.c_void_p], ctypes.c_double
    lib.ct_error.restype = ctypes.c_char_p
    x = lib.ct_scalar(1.5, 0)
    if lib.ct_item(lib.ct_add(x, x)) != 3.0:
        failures.append("1.5 + 1.5")
    if lib.ct_add(x, None) or lib.ct_error() != b"add: argument b is NULL":
        failures.append(repr(lib.ct_error()))
    lib.ct_error_clear()

failures, opened, found = [], threading.Event(), []
before = threading.Thread(target=lambda: (opened.wait(), use(found[0], failures)))
before.start()
found.append(ctypes.CDLL(sys.argv[1]))
opened.set()
after = threading.Thread(target=use, args=(found[0], failures))
after.start()
use(found[0], failures)
before.join()
after.join()
print(failures)
sys.exit(bool(failures))
PYTHON
}
if command -v python3 >/dev/null; then
    check "Python opens it" python_host
else
    skip "Python opens it" "no python3"
fi
finish
