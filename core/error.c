/* Errors: one record a thread, raised in one function, kept until it is cleared. */
#include "core/error.h"

#include <stdio.h>
#include <string.h>

static _Thread_local ct_error_record current;

bool ct__failv(ct_code code, const char *op, const char *format, va_list args) {
    if (current.code != CT_OK) return false; /* the first error is the one worth reading */
    current.code = code;
    snprintf(current.op, sizeof current.op, "%s", op ? op : "");
    int used = 0;
    if (current.op[0]) used = snprintf(current.text, sizeof current.text, "%s: ", current.op);
    vsnprintf(current.text + used, sizeof current.text - (size_t)used, format, args);
    return false;
}

bool ct_fail(ct_code code, const char *op, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__failv(code, op, format, args);
    va_end(args);
    return false;
}

bool ct__fail_null(const char *op, const char *argument) {
    if (current.code != CT_OK) return false;
    return ct_fail(CT_ERR_NULL, op, "argument %s is NULL", argument);
}

bool ct__fail_memory(const char *op, size_t bytes) {
    return ct_fail(CT_ERR_MEMORY, op, "out of memory: %zu bytes could not be had", bytes);
}

bool ct__pending(void) { return current.code != CT_OK; }
bool ct_ok(void) { return current.code == CT_OK; }
ct_code ct_error_code(void) { return current.code; }
const char *ct_error(void) { return current.code == CT_OK ? "" : current.text; }
const char *ct_error_op(void) { return current.code == CT_OK ? "" : current.op; }
void ct_error_clear(void) { current.code = CT_OK; }

void ct__error_take(ct_error_record *record) {
    record->code = current.code;
    if (current.code == CT_OK) return;
    *record = current;
    current.code = CT_OK;
}

void ct__error_put(const ct_error_record *record) {
    if (record->code != CT_OK && current.code == CT_OK) current = *record;
}

const char *ct_code_text(ct_code code) {
    switch (code) {
#define CODE_TEXT(name, text) \
    case name: return text;
        CT_ERROR_LIST(CODE_TEXT)
#undef CODE_TEXT
    }
    return "unknown error code";
}
