/* Names that become others by patterns, and the names of other libraries that modules know. */
#include "nn/names.h"

#include <stdlib.h>

enum { MOST_STARS = 16 };

/* What each star stands for. */
typedef struct stars {
    const char *at[MOST_STARS];
    size_t length[MOST_STARS];
    int count;
} stars;

static int count_stars(const char *pattern) {
    int count = 0;
    for (; *pattern; pattern++) count += *pattern == '*';
    return count;
}

bool ct__renames_valid(const ct_rename *renames, int count, const char *function) {
    if (count < 0 || (count > 0 && !renames))
        return ct_fail(count < 0 ? CT_ERR_VALUE : CT_ERR_NULL, function, "rename_count is %d and renames is %s", count,
                       renames ? "given" : "NULL");
    for (int i = 0; i < count; i++) {
        const ct_rename *r = &renames[i];
        if (!r->from) return ct_fail(CT_ERR_NULL, function, "renames[%d].from is NULL", i);
        const int from = count_stars(r->from), to = r->to ? count_stars(r->to) : 0;
        if (from > MOST_STARS)
            return ct_fail(CT_ERR_VALUE, function, "renames[%d]: \"%.64s\" has %d stars; %d is the most", i, r->from,
                           from, MOST_STARS);
        if (to > from)
            return ct_fail(CT_ERR_VALUE, function, "renames[%d]: \"%.64s\" has %d stars and \"%.64s\" only %d", i,
                           r->to, to, r->from, from);
    }
    return true;
}

/* Whether the pattern fits all of text. Once what follows a star has been found, at its first place, no earlier star has to
 * be thought over: what comes later fits behind the first place if it fits behind any. So only the last star moves, and the
 * time is at most the product of the lengths. */
static bool fits(const char *pattern, const char *text, stars *found) {
    const char *after = NULL; /* the pattern behind the last star */
    found->count = 0;
    for (;;) {
        if (*pattern == '*') {
            if (found->count == MOST_STARS) return false; /* a class's own; those of options were counted */
            found->at[found->count] = text;
            found->length[found->count++] = 0;
            after = ++pattern;
        } else if (*pattern == *text) {
            if (!*text) return true;
            pattern++, text++;
        } else {
            if (!after || !*text) return false;
            const int last = found->count - 1;
            text = found->at[last] + ++found->length[last];
            pattern = after;
        }
    }
}

/* `to` with its stars filled in, in memory that the caller frees; NULL with an error. */
static char *fill(const char *to, const stars *found, const char *function) {
    size_t bytes = strlen(to) + 1; /* every star is used at most once: this cannot overflow before memory is short */
    for (int i = 0; i < found->count; i++) bytes += found->length[i];
    char *text = ct_malloc(bytes), *end = text;
    if (!text) {
        ct_fail(CT_ERR_MEMORY, function, "out of memory");
        return NULL;
    }
    for (int star = 0; *to; to++) {
        if (*to != '*') {
            *end++ = *to;
            continue;
        }
        if (star == found->count) continue; /* a class's own, as above */
        memcpy(end, found->at[star], found->length[star]);
        end += found->length[star++];
    }
    *end = 0;
    return text;
}

ct__renamed ct__rename(const ct_rename *renames, int count, const char *name, char **to, const char *function) {
    stars found;
    for (int i = 0; (count < 0 || i < count) && renames[i].from; i++) {
        if (!fits(renames[i].from, name, &found)) continue;
        if (!renames[i].to) return CT__NAME_LEFT_OUT;
        *to = fill(renames[i].to, &found, function);
        return *to ? CT__NAME_CHANGED : CT__NAME_FAILED;
    }
    return CT__NAME_SAME;
}

ct__renamed ct__own_name(const ct_module *module, const char *name, char **to, const char *function) {
    const size_t bytes = strlen(name) + 1;
    char *path = ct_malloc(bytes); /* what has been understood of the name, then the rest */
    if (!path) {
        ct_fail(CT_ERR_MEMORY, function, "out of memory");
        return CT__NAME_FAILED;
    }
    memcpy(path, name, bytes);
    ct__renamed result = CT__NAME_SAME;
    for (size_t seen = 0; module;) {
        char *rest = NULL;
        const ct__renamed here =
            module->type->aliases ? ct__rename(module->type->aliases, -1, path + seen, &rest, function) : CT__NAME_SAME;
        if (here == CT__NAME_FAILED || here == CT__NAME_LEFT_OUT) {
            ct_free(path);
            return here;
        }
        if (here == CT__NAME_CHANGED) {
            char *longer = ct_realloc(path, seen + strlen(rest) + 1);
            if (longer) strcpy(longer + seen, rest);
            ct_free(rest);
            if (!longer) {
                ct_free(path);
                ct_fail(CT_ERR_MEMORY, function, "out of memory");
                return CT__NAME_FAILED;
            }
            path = longer;
            result = CT__NAME_CHANGED;
        }
        const char *dot = strchr(path + seen, '.');
        if (!dot) break;
        const size_t end = (size_t)(dot - path);
        path[end] = 0;
        module = ct_module_find_child(module, path + seen);
        path[end] = '.';
        seen = end + 1;
    }
    if (result == CT__NAME_CHANGED) *to = path;
    else ct_free(path);
    return result;
}
