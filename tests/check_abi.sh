#!/usr/bin/env bash
# The interface fits programs that were compiled against the last release (make abi), and what finds that out finds what it should:
# headers are changed in ways that older programs survive, and in ways that they do not.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

for tool in abidw abidiff awk gzip; do
    if ! command -v $tool >/dev/null; then
        skip "all" "no $tool (Debian's abigail-tools)"
        finish
    fi
done

abi() { bash "$source_dir/tools/abi/abi.sh" "$@"; }
check "the interface is compatible with the saved one" abi check "$build_dir"

# changed FILE SED: what an edit of a header comes to, against a dump of the headers as they are.
check "a dump can be made" abi save "$build_dir" "$work/now.abi.gz"
changed() {
    local file=$1 edit=$2
    rm -rf "$work/include" && cp -r "$source_dir/include" "$work/include"
    sed -i "$edit" "$work/include/$file"
    if cmp -s "$source_dir/include/$file" "$work/include/$file"; then
        echo "the edit changes nothing: $edit"
        return 3
    fi
    CT_HEADERS=$work/include abi check "$build_dir" "$work/now.abi.gz"
}
breaks() {
    changed "$@"
    [ $? -eq 1 ]
}

check "a new function is harmless" changed cotangent.h 's/^CT_API int ct_version(void);/&\nCT_API int ct_newer(void);/'
check "a new option at the end is harmless" changed cotangent.h 's/^} ct_wrap_options;/    int64_t later;\n&/'
check "a new member at the end of ct_op is harmless" changed cotangent/op.h '/^struct ct_op {/,/^};/ s/^};/    void *later;\n};/'
check "a new kind of error is harmless" changed cotangent.h 's/^    X(CT_ERR_STATE, "the object.*")/& X(CT_ERR_LATER, "later")/'
check "a new dtype at the end is harmless" changed cotangent.h 's/^    CT_COMPLEX64,/& CT_I4,/'
check "an option in the middle is not" breaks cotangent.h 's/^    ct_dims strides; .*/    int64_t earlier;\n&/'
check "an option of another type is not" breaks cotangent.h 's/^    bool read_only;/    double read_only;/'
check "a longer ct_view is not" breaks cotangent/op.h 's/^    int64_t strides\[CT_MAX_DIMS\];.*/&\n    int64_t later;/'
check "another order of dtypes is not" breaks cotangent.h 's/^    CT_F64,/    CT_I4, CT_F64,/'
check "a function that is gone is not" breaks cotangent.h '/^CT_API int64_t ct_item_i64/d'
check "a function with another argument is not" breaks cotangent.h 's/^CT_API int ct_ndim(const ct_tensor \*x);/CT_API int ct_ndim(const ct_tensor *x, int more);/'
check "a function with another result is not" breaks cotangent.h 's/^CT_API int ct_ndim/CT_API double ct_ndim/'
check "a struct that only modules see is seen" breaks cotangent/backend.h 's/^    bool (\*ok)(void);//'
finish
