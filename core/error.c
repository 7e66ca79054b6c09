/* Errors: one record per thread, raised in one function, kept until it is cleared. */
#include "core/error.h"

#include <stdio.h>
#include <string.h>

#include "core/thread_block.h"

_Thread_local ct_error_state ct__errors;

bool ct__error_prepare(void) {
    ct_error_state *now = &ct__errors;
    return now->record || ct__thread_block((void **)&now->record, sizeof *now->record);
}

/* The op that the user called is named first; where the error came up inside of it, that place follows. */
bool ct__failv(ct_code code, const char *op, const char *format, va_list args) {
    ct_error_state *now = &ct__errors;
    now->raised++;
    if (now->code != CT_OK) return false; /* the first error is the one worth reading */
    now->code = code;
    if (!ct__error_prepare()) return false;
    const char *named = now->called ? now->called : op ? op : "";
    const bool inner = now->called && op && op[0] && strcmp(op, named) != 0;
    char *text = now->record->text;
    const size_t room = sizeof now->record->text;
    size_t used = 0;
    snprintf(now->record->op, sizeof now->record->op, "%s", named);
    if (named[0]) used = (size_t)snprintf(text, room, "%s: ", now->record->op);
    vsnprintf(text + used, room - used, format, args);
    used = strlen(text);
    if (inner && now->in_gradient) snprintf(text + used, room - used, " (in %s, in its gradient)", op);
    else if (inner) snprintf(text + used, room - used, " (in %s)", op);
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
    if (ct__pending()) return false;
    return ct_fail(CT_ERR_NULL, op, "argument %s is NULL", argument);
}

bool ct__fail_memory(const char *op, size_t bytes) {
    if (ct__errors.called) op = NULL; /* which of its parts was the unlucky one says nothing */
    return ct_fail(CT_ERR_MEMORY, op, "out of memory: %zu bytes could not be had", bytes);
}

bool ct_ok(void) { return !ct__pending(); }
ct_code ct_error_code(void) { return ct__errors.code; }

const char *ct_error(void) {
    if (!ct__pending()) return "";
    return ct__errors.record ? ct__errors.record->text : ct_code_text(ct__errors.code);
}

const char *ct_error_op(void) { return ct__pending() && ct__errors.record ? ct__errors.record->op : ""; }
void ct_error_clear(void) { ct__errors.code = CT_OK; }

void ct__error_take(ct_error_record *record) {
    record->code = CT_OK;
    if (!ct__pending()) return;
    if (ct__errors.record) *record = *ct__errors.record;
    else record->op[0] = 0, snprintf(record->text, sizeof record->text, "%s", ct_error());
    record->code = ct__errors.code;
    ct_error_clear();
}

void ct__error_put(const ct_error_record *record) {
    const size_t named = strlen(record->op);
    if (record->code == CT_OK) return;
    ct_fail(record->code, record->op, "%s", record->text + (named ? named + strlen(": ") : 0));
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
