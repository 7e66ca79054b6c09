#!/usr/bin/env bash
# The public headers and the examples compile without a warning: C11 and C17, gcc and clang; the headers as C++17 too.
# A C++ program loads weights.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror"
include="-I$source_dir/include -I$build_dir/generated/include"
headers="cotangent.h $(cd "$source_dir/include" && ls cotangent/*.h) cotangent/ops.h"

for header in $headers; do
    name=${header//[\/.]/_}
    # Twice, for the guard; and scopes within scopes, which must not shadow each other.
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" >"$work/$name.cc"
    cp "$work/$name.cc" "$work/$name.c"
    cat >>"$work/$name.c" <<'C'
int nested(void);
int nested(void) {
    ct_scope {
        ct_no_grad {
            ct_scope {
                ct_no_grad { return ct_ok(); }
            }
        }
    }
    return 0;
}
C
    for compiler in gcc clang; do
        for standard in c11 c17; do
            if ! command -v $compiler >/dev/null; then
                skip "$header $standard" "no $compiler"
            else
                check "$header as $standard in $compiler" $compiler -std=$standard $warnings $include -fsyntax-only "$work/$name.c"
            fi
        done
    done
    for compiler in g++ clang++; do
        if ! command -v $compiler >/dev/null; then
            skip "$header c++17" "no $compiler"
        else
            check "$header as C++17 in $compiler" $compiler -std=c++17 $warnings $include -fsyntax-only "$work/$name.cc"
        fi
    done
done

# What C calls with options by name, and C++ as functions.
cat >"$work/loads.cc" <<'CC'
#include <cotangent/io.h>
#include <cotangent/nn.h>

#include <cstdio>
#include <cstdlib>

static int line_of_failure = 0;
static bool good(bool ok, int line) {
    if (!ok && !line_of_failure) line_of_failure = line;
    return ok;
}
#define GOOD(condition) good((condition), __LINE__)
/* False where a library for that kind of file is missing: then there is nothing to test. */
static bool can(bool ok) {
    const bool missing = !ok && ct_error_code() == CT_ERR_UNSUPPORTED;
    if (missing) ct_error_clear();
    else GOOD(ok);
    return !missing;
}
static double weight(ct_module *net) { return ct_item(ct_sum_p(ct_module_param(net, 0), nullptr)); }

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    ct_module *a = ct_nn_linear_p(2, 3, nullptr), *b = ct_nn_linear_p(2, 3, nullptr), *wide = ct_nn_linear_p(4, 3, nullptr);
    ct_state *state = ct_state_new();
    GOOD(ct_init_constant(ct_module_param(a, 0), 2) && ct_module_put_state(a, state, "net."));
    GOOD(ct_module_take_state(b, state, "net.") && weight(b) == 12);
    ct_load_report *report = nullptr;
    ct_load_options options = {};
    options.lenient = true;
    options.report = &report;
    GOOD(!ct_module_take_state(wide, state, "net.") && ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    GOOD(ct_module_take_state(wide, state, "net.", options) && ct_load_report_count(report, CT_LOAD_MISMATCH) == 1);
    ct_load_report_free(report);

    GOOD(ct_init_constant(ct_module_param(b, 0), 0) && ct_save(argv[1], a));
    if (can(ct_load(argv[1], b))) {
        GOOD(weight(b) == 12);
        GOOD(ct_load(argv[1], wide, options) && ct_load_report_count(report, CT_LOAD_LOADED) == 1);
        ct_load_report_free(report);
    }

    void *bytes = nullptr;
    size_t size = 0;
    ct_image_options smaller = {};
    smaller.height = smaller.width = 2;
    ct_full_options u8 = {};
    u8.size = sizeof u8;
    u8.dtype = CT_U8;
    ct_dims shape = {};
    shape.n = 3, shape.d[0] = 1, shape.d[1] = shape.d[2] = 4;
    if (can(ct_image_encode_png(ct_full_p(shape, 7, &u8), &bytes, &size))) {
        GOOD(ct_dim(ct_image_decode(bytes, size, 1), 1) == 4);
        GOOD(ct_dim(ct_image_decode(bytes, size, 1, smaller), 1) == 2);
        std::FILE *file = std::fopen(argv[1], "wb");
        GOOD(file && std::fwrite(bytes, 1, size, file) == size);
        if (file) std::fclose(file);
        GOOD(ct_dim(ct_image_load(argv[1], 3), 0) == 3 && ct_dim(ct_image_load(argv[1], 3, smaller), 2) == 2);
    }
    ct_free(bytes);
    ct_state_free(state);
    ct_module_free(a);
    ct_module_free(b);
    ct_module_free(wide);
    if (line_of_failure || !ct_ok()) std::printf("line %d: %s\n", line_of_failure, ct_error());
    return line_of_failure || !ct_ok();
}
CC
for compiler in g++ clang++; do
    name="a C++ program loads weights and pictures, by $compiler"
    if ! command -v $compiler >/dev/null; then
        skip "$name" "no $compiler"
    elif [ -n "$sanitize" ]; then
        skip "$name" "an instrumented library wants the compiler that made it"
    else
        check "$name: compiled" $compiler -std=c++17 $warnings $include "$work/loads.cc" -o "$work/loads" "-L$build_dir/lib" -lcotangent "-Wl,-rpath,$build_dir/lib"
        check "$name" "$work/loads" "$work/loads.file"
    fi
done

for example in "$source_dir"/examples/*.c; do
    for compiler in gcc clang; do
        for standard in c11 c17; do
            name="$(basename "$example") as $standard in $compiler"
            if ! command -v $compiler >/dev/null; then
                skip "$name" "no $compiler"
            else
                check "$name" $compiler -std=$standard $warnings $include -fsyntax-only "$example"
            fi
        done
    done
done

finish
