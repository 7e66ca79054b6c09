/* Checkpoints: the parts of a run in one safetensors file, all of them or none. Which file, and how many are kept: see
 * run_folder.c. */
#include <cotangent/run.h>

#include "io/checked.h"
#include "io/run.h"
#include "io/safetensors.h"
#include "support/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The parts ---- */

/* In its own layout: optimizer and averages have theirs by it. */
static bool take_net(ct_module *net, const ct_state *state, const char *prefix) {
    return ct_module_take_state(net, state, prefix, .layout = CT_LAYOUT_SAME);
}

/* PART(field of ct_run and name in the file, how it is stored, how it is taken back). The order is that of taking: a
 * schedule sets its optimizer's rate. */
#define PARTS(PART)                                               \
    PART(net, ct_module_put_state, take_net)                      \
    PART(optim, ct_optim_put_state, ct_optim_take_state)          \
    PART(schedule, ct_schedule_put_state, ct_schedule_take_state) \
    PART(scaler, ct_scaler_put_state, ct_scaler_take_state)       \
    PART(ema, ct_ema_put_state, ct_ema_take_state)                \
    PART(loader, ct_loader_put_state, ct_loader_take_state)

typedef struct part {
    const char *name, *prefix;
    bool (*has)(const ct_run *run);
    bool (*put)(const ct_run *run, ct_state *state, const char *prefix);
    bool (*take)(const ct_run *run, const ct_state *state, const char *prefix);
} part;

#define PART(field, put_state, take_state)                                                        \
    static bool part_has_##field(const ct_run *run) { return run->field != NULL; }                \
    static bool part_put_##field(const ct_run *run, ct_state *state, const char *prefix) {        \
        return put_state(run->field, state, prefix);                                              \
    }                                                                                             \
    static bool part_take_##field(const ct_run *run, const ct_state *state, const char *prefix) { \
        return take_state(run->field, state, prefix);                                             \
    }
PARTS(PART)
#undef PART

static const part parts[] = {
#define PART(field, put_state, take_state) {#field, #field ".", part_has_##field, part_put_##field, part_take_##field},
    PARTS(PART)
#undef PART
};
enum { PART_COUNT = sizeof parts / sizeof *parts };

/* ---- Names in the file ---- */

static const char version[] = "1", parts_text[] = "cotangent.parts", isa_text[] = "cotangent.isa",
                  library_text[] = "cotangent.version", extra_prefix[] = "extra.";
enum { COUNTERS = CT__RUN_COUNTER_COUNT };

static bool put_extra(const ct_state *extra, ct_state *state) {
    char *name = NULL;
    bool good = true;
    for (int text = 0; text < 2; text++) {
        const int64_t count = text ? ct_state_text_count(extra) : ct_state_count(extra);
        for (int64_t i = 0; i < count && good; i++) {
            const char *from = text ? ct_state_text_name(extra, i) : ct_state_name(extra, i);
            const size_t capacity = strlen(from) + sizeof extra_prefix;
            char *more = ct_realloc(name, capacity);
            if (!more) {
                good = ct_fail(CT_ERR_MEMORY, "run", "out of memory");
                break;
            }
            name = more;
            snprintf(name, capacity, "%s%s", extra_prefix, from);
            good = text ? ct_state_put_text(state, name, ct_state_text_at(extra, i))
                        : ct_state_put(state, name, ct_state_at(extra, i));
        }
    }
    ct_free(name);
    return good;
}

/* Everything under "extra." in a state of its own; NULL with an error. */
static ct_state *take_extra(const ct_state *state) {
    const size_t length = sizeof extra_prefix - 1;
    ct_state *extra = ct_state_new();
    bool good = extra != NULL;
    for (int64_t i = 0; good && i < ct_state_count(state); i++) {
        const char *name = ct_state_name(state, i);
        if (strncmp(name, extra_prefix, length) == 0) good = ct_state_put(extra, name + length, ct_state_at(state, i));
    }
    for (int64_t i = 0; good && i < ct_state_text_count(state); i++) {
        const char *name = ct_state_text_name(state, i);
        if (strncmp(name, extra_prefix, length) == 0)
            good = ct_state_put_text(extra, name + length, ct_state_text_at(state, i));
    }
    if (good) return extra;
    ct_state_free(extra);
    return NULL;
}

/* ---- Writing ---- */

static bool put_run(const ct_run *run, ct_state *state) {
    char list[128] = "";
    bool good = ct_state_put_text(state, CT__RUN_FORMAT, version) &&
                ct_state_put_text(state, library_text, ct_version_text()) &&
                ct_state_put_text(state, isa_text, ct_isa());
    for (int i = 0; i < PART_COUNT && good; i++) {
        if (!parts[i].has(run)) continue;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? " " : "", parts[i].name);
        good = parts[i].put(run, state, parts[i].prefix);
    }
    const int64_t numbers[COUNTERS] = {[CT__RUN_EPOCH] = run->epoch,
                                       [CT__RUN_STEP] = run->step,
                                       [CT__RUN_SEED] = (int64_t)ct_get_seed(),
                                       [CT__RUN_POSITION] = (int64_t)ct_rng_position(NULL)};
    return good && ct_state_put_text(state, parts_text, list) &&
           ct_state_put_integers(state, CT__RUN_COUNTERS, numbers, COUNTERS) &&
           (!run->extra || put_extra(run->extra, state));
}

bool ct__run_write(const ct_run *run, const char *path) {
    bool good = false;
    ct_scope {
        ct_state *state = ct_state_new();
        good = state && put_run(run, state) && ct__safetensors_write(path, state, true, "run");
        ct_state_free(state);
    }
    return good;
}

/* ---- Reading ---- */

static bool in_list(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = list; at && (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
    return false;
}

/* A state of what the parts hold now, in tensors of its own: what is put shares them, and they are about to change. */
static ct_state *remember(const ct_run *run) {
    ct_state *now = ct_state_new(), *copy = ct_state_new();
    bool good = now && copy;
    for (int i = 0; i < PART_COUNT && good; i++)
        if (parts[i].has(run)) good = parts[i].put(run, now, parts[i].prefix);
    for (int64_t i = 0; good && i < ct_state_count(now); i++) {
        ct_no_grad
            ct_scope {
                good = ct_state_put(copy, ct_state_name(now, i), ct_clone(ct_state_at(now, i)));
            }
    }
    for (int64_t i = 0; good && i < ct_state_text_count(now); i++)
        good = ct_state_put_text(copy, ct_state_text_name(now, i), ct_state_text_at(now, i));
    ct_state_free(now);
    if (good) return copy;
    ct_state_free(copy);
    return NULL;
}

/* Takes every part, or puts back those that were taken before one failed. */
static bool take_parts(const ct_run *run, const ct_state *stored, const char *path) {
    ct_state *before = remember(run);
    if (!before) return false;
    int taken = 0;
    bool good = true;
    for (; taken < PART_COUNT && good; taken++)
        if (parts[taken].has(run)) good = parts[taken].take(run, stored, parts[taken].prefix);
    if (!good) {
        const ct_code code = ct_error_code();
        char text[1024];
        snprintf(text, sizeof text, "%s", ct__error_text());
        ct_error_clear(); /* or nothing could be put back */
        for (int i = 0; i < taken; i++)
            if (parts[i].has(run)) parts[i].take(run, before, parts[i].prefix);
        ct_error_clear();
        ct_fail(code, "run", "%s: %s", path, text);
    }
    ct_state_free(before);
    return good;
}

static bool check_parts(const ct_run *run, const ct_state *stored, const char *path) {
    const char *list = ct_state_text(stored, parts_text);
    for (int i = 0; i < PART_COUNT; i++)
        if (parts[i].has(run) && !in_list(list, parts[i].name))
            return ct_fail(CT_ERR_VALUE, "run", "%s: holds no %s; it has: %s", path, parts[i].name, list ? list : "");
    return true;
}

ct_state *ct_run_open(const char *path) {
    bool has_checksum = false;
    ct_state *stored = ct__open_checked(path, false, "run", &has_checksum);
    const char *format = stored ? ct_state_text(stored, CT__RUN_FORMAT) : NULL;
    int64_t numbers[COUNTERS];
    bool good = stored != NULL;
    if (good && (!has_checksum || !format)) good = ct_fail(CT_ERR_IO, "run", "%s: is not a checkpoint of a run", path);
    if (good && strcmp(format, version) != 0)
        good = ct_fail(CT_ERR_IO, "run", "%s: is a checkpoint of version %.20s, this library reads %s", path, format,
                       version);
    if (good && !ct_state_integers(stored, CT__RUN_COUNTERS, numbers, COUNTERS)) {
        ct__say_file(path, "run");
        good = false;
    }
    if (good) return stored;
    ct_state_free(stored);
    return NULL;
}

bool ct__run_take(ct_run *run, const ct_state *stored, const char *path) {
    int64_t numbers[COUNTERS];
    ct_state *extra = NULL;
    bool good = false;
    ct_scope {
        good = ct_state_integers(stored, CT__RUN_COUNTERS, numbers, COUNTERS) && check_parts(run, stored, path) &&
               (!run->extra || (extra = take_extra(stored))) && take_parts(run, stored, path);
    }
    if (!good) {
        ct_state_free(extra);
        return false;
    }
    if (run->extra) {
        ct_state_free(run->extra);
        run->extra = extra;
    }
    run->epoch = numbers[CT__RUN_EPOCH];
    run->step = numbers[CT__RUN_STEP];
    ct_seed((uint64_t)numbers[CT__RUN_SEED]);
    ct_rng_set_position(NULL, (uint64_t)numbers[CT__RUN_POSITION]);
    const char *isa = ct_state_text(stored, isa_text);
    snprintf(run->isa, sizeof run->isa, "%s", isa ? isa : "");
    if (strcmp(run->isa, ct_isa()) != 0) {
        const size_t used = strlen(run->note);
        snprintf(run->note + used, sizeof run->note - used,
                 "%swritten under %s, this is %s: the next steps are the same up to rounding, not to the bit",
                 used ? "; " : "", run->isa, ct_isa());
    }
    return true;
}

bool ct__run_open_struct(ct_run *whole, const ct_run *given) {
    if (!ct_ok()) return false;
    if (!given) return ct_fail(CT_ERR_NULL, "run", "argument run is NULL");
    ct__take_options("ct_run", whole, sizeof *whole, given);
    return ct_ok() && (whole->net || ct_fail(CT_ERR_NULL, "run", "run->net is NULL"));
}

void ct__run_close_struct(const ct_run *whole, ct_run *given) {
    const size_t size = given->size;
    memcpy(given, whole, size < sizeof *whole ? size : sizeof *whole);
    given->size = size;
}

bool ct_run_put_state(const ct_run *run, ct_state *state) {
    ct_run whole;
    if (!ct__run_open_struct(&whole, run)) return false;
    return state ? put_run(&whole, state) : ct_fail(CT_ERR_NULL, "run", "argument state is NULL");
}

bool ct_run_take_state(ct_run *run, const ct_state *state, const char *path) {
    ct_run whole;
    if (!ct__run_open_struct(&whole, run)) return false;
    if (!state) return ct_fail(CT_ERR_NULL, "run", "argument state is NULL");
    whole.note[0] = 0;
    const bool good = ct__run_take(&whole, state, path ? path : "");
    ct__run_close_struct(&whole, run);
    return good;
}

bool ct_run_load(ct_run *run, const char *path) {
    ct_run whole;
    ct_state *stored = ct__run_open_struct(&whole, run) ? ct_run_open(path) : NULL;
    const bool good = stored && ct_run_take_state(run, stored, path);
    ct_state_free(stored);
    return good;
}

/* A shorter run has no place for them. */
const char *ct_run_isa(const ct_run *run) {
    return run && run->size >= offsetof(ct_run, isa) + sizeof run->isa ? run->isa : "";
}
const char *ct_run_note(const ct_run *run) {
    return run && run->size >= offsetof(ct_run, note) + sizeof run->note ? run->note : "";
}
