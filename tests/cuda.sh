#!/usr/bin/env bash
# What needs an NVIDIA device: `make test-cuda`. Without one everything is skipped, by name and with the reason.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cotangent=$build_dir/bin/cotangent
export CT_BACKEND_PATH=$build_dir/lib
why=$("$cotangent" info | sed -n 's/^cuda *//p')
case $why in
"no: there is no module"*) skip "the module opens, or says why it cannot be used" "make cuda has not built it" ;;
*) check "the module opens, or says why it cannot be used" [ -n "$why" ] ;;
esac
if [ "$why" != yes ]; then
    skip "every op on an NVIDIA device" "$why"
    skip "what only an NVIDIA device can show" "$why"
    skip "every kernel under memcheck" "$why"
    finish
fi
check "every op on an NVIDIA device" "$cotangent" check --device cuda --values --gradients
for source in "$source_dir"/tests/test_cuda*.c; do
    program=$(basename "$source" .c)
    check "what only an NVIDIA device can show: $program" "$build_dir/tests/$program"
done
if command -v compute-sanitizer >/dev/null; then
    memcheck() {
        # shellcheck disable=SC2046 # a list of names
        compute-sanitizer --tool memcheck --error-exitcode 1 --target-processes all "$cotangent" check --device cuda --values \
            add where clamp $("$cotangent" ops --primitives | awk '{print $1}')
    }
    check "every kernel under memcheck" memcheck
else
    skip "every kernel under memcheck" "compute-sanitizer is not installed"
fi
finish
