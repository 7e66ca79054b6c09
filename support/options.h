/* What nn/, optim/, data/ and io/ share: how they read the structs that callers hand over, which may be of another version,
 * and settings that are chosen by name; a limit, and a comparison of shapes. */
#ifndef COTANGENT_SUPPORT_OPTIONS_H
#define COTANGENT_SUPPORT_OPTIONS_H

#include <cotangent/state.h>

#include <math.h>
#include <stddef.h>
#include <string.h>

/* An older caller has a shorter struct: what it lacks is zero, which is the default. Without a size nothing can be read, and what
 * a newer caller sets beyond this version cannot be done: these are errors, which the caller finds pending. type: the struct's
 * name, for them. */
void ct__take_options(const char *type, void *options, size_t size, const void *given);

/* Declares `name`, with what was given in it. Look for an error afterwards. */
#define TAKE_OPTIONS(type, name, given) \
    type name;                          \
    ct__take_options(#type, &name, sizeof name, (given))

/* A class (of modules, datasets, transforms) as this version knows it, size bytes: the given one or, where that is shorter since
 * its header was older, a copy in own whose rest is zero. NULL with an error where it has no size. */
const void *ct__take_class(const char *type, void *own, size_t size, const void *given);

/* How many modules, datasets or schedules may be within one another: they are run and freed by recursion, and a limit
 * keeps that off the end of the stack. */
enum { CT__MOST_DEPTH = 256 };

static inline bool ct__same_shape(ct_dims a, ct_dims b) {
    return a.n == b.n && memcmp(a.d, b.d, (size_t)a.n * sizeof *a.d) == 0;
}

/* What a value of a setting has to be, for an error; NULL when it is that. Whatever passes as whole can be cast to int64_t. */
static inline const char *ct__setting_wants(const ct_setting *setting, double value) {
    const bool whole = value == floor(value), large = fabs(value) > 0x1p53;
    switch (setting->kind) {
    case CT_SETTING_NUMBER: return isfinite(value) ? NULL : "a finite number";
    case CT_SETTING_WHOLE: return large ? "a whole number of at most 2^53" : whole ? NULL : "a whole number";
    case CT_SETTING_FLAG: return value == 0 || value == 1 ? NULL : "0 or 1";
    case CT_SETTING_STEPS:
        if (large) return "a whole number of at most 2^53";
        return whole || (value > 0 && value < 1) ? NULL : "a whole number, or below 1 a part of all steps";
    }
    return NULL;
}

#endif
