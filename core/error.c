/* Errors: one record per thread, raised in one function, kept until it is cleared. */
#include "core/error.h"

#include <cotangent/backend.h>
#include <float.h>
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

static void number_text(char *text, size_t room, bool is_real, double real, int64_t integer) {
    if (is_real) snprintf(text, room, "%g", real);
    else snprintf(text, room, "%lld", (long long)integer);
}

/* "target is 7 at element 3", "the sum of the weights in row 3 is 0" */
static void wrong_text(char *text, size_t room, const ct_wrong_value *wrong) {
    char value[32], name[64], place[48] = "";
    int i = 0;
    const ct_arg *arg = wrong->op->inputs;
    for (; i < wrong->argument && arg[1].name && !(arg->flags & CT_ARG_LIST); i++) arg++;
    number_text(value, sizeof value, wrong->is_real, wrong->real_value, wrong->value);
    if (wrong->what && wrong->position >= 0) snprintf(place, sizeof place, " %lld", (long long)wrong->position);
    else if (!wrong->what) snprintf(place, sizeof place, " at element %lld", (long long)wrong->position);
    if (arg->flags & CT_ARG_LIST) snprintf(name, sizeof name, "%s[%d]", arg->name, wrong->argument - i);
    else snprintf(name, sizeof name, "%s", arg->name);
    if (wrong->what) snprintf(text, room, "%s%s is %s", wrong->what, place, value);
    else snprintf(text, room, "%s is %s%s", name, value, place);
}

/* "in 0 to 4" */
static void bounds_text(char *text, size_t room, const ct_wrong_value *wrong) {
    char low[32], high[32];
    number_text(low, sizeof low, wrong->is_real, wrong->real_low, wrong->low);
    number_text(high, sizeof high, wrong->is_real, wrong->real_high, wrong->high);
    const bool open = wrong->is_real ? wrong->real_high >= DBL_MAX : wrong->high == CT_NO_BOUND;
    const bool finite = wrong->is_real && wrong->real_high == DBL_MAX;
    if (!open && strcmp(low, high) == 0) snprintf(text, room, "%s", low);
    else if (!open) snprintf(text, room, "in %s to %s", low, high);
    else if (wrong->is_real && wrong->real_low == DBL_MIN)
        snprintf(text, room, "%sabove 0", finite ? "finite and " : "");
    else snprintf(text, room, "%s%s or more", finite ? "finite and " : "", low);
}

/* Raised where it is found on the CPU, and at a later wait on a device: there, too, it names the op that was called then. A
 * part of that op which the program cannot call is not named: it would say nothing. */
bool ct_fail_value(const ct_wrong_value *wrong) {
    if (!wrong || !wrong->op) return ct__fail_null("fail_value", wrong ? "wrong->op" : "wrong");
    const char *called = ct__errors.called;
    const bool in_gradient = ct__errors.in_gradient;
    char what[256], bounds[128];
    wrong_text(what, sizeof what, wrong);
    bounds_text(bounds, sizeof bounds, wrong);
    ct__errors.called = wrong->called ? wrong->called : wrong->op->name;
    ct__errors.in_gradient = wrong->flags & CT_CALL_GRADIENT;
    const char *where = wrong->op->flags & CT_OP_INTERNAL ? ct__errors.called : wrong->op->name;
    if (!wrong->is_real && wrong->high < wrong->low)
        ct_fail(wrong->code, where, "%s, and there is nothing that it could name", what);
    else ct_fail(wrong->code, where, "%s; it has to be %s", what, bounds);
    ct__errors.called = called;
    ct__errors.in_gradient = in_gradient;
    return false;
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
