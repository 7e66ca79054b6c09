/* Checkpoints by many ranks: one file, that of the whole network, whichever way it is divided. Every rank knows where in
 * the file the elements go that it has, and writes them there; rank 0 opens the file under a temporary name and, when all
 * have written and synced, gives it its own. Whoever dies before that leaves the checkpoint before it as it was. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cotangent/io.h>

#include "dist/parts.h"
#include "support/checksum.h"
#include "support/files.h"

/* ---- Names ----
 * "net.PARAMETER", and of optimizer and averages "optim.PARAMETER.WHAT"; the optimizer's "steps" and "numbers" end with
 * one for each parameter. */

static const char net_prefix[] = "net.", optim_prefix[] = "optim.", steps_name[] = "optim.steps",
                  numbers_name[] = "optim.numbers";
static const char *const learned_prefixes[] = {optim_prefix, "ema."};

/* The local tensor that an entry belongs to; *what: what follows its name. NULL: it is none of a parameter. */
static const ct__local *owner_of(const ct__parts *parts, const char *name, size_t *prefix, const char **what) {
    const size_t net = sizeof net_prefix - 1;
    const char *end = name + strlen(name);
    *prefix = strncmp(name, net_prefix, net) == 0 ? net : 0;
    for (size_t i = 0; !*prefix && i < sizeof learned_prefixes / sizeof *learned_prefixes; i++)
        if (strncmp(name, learned_prefixes[i], strlen(learned_prefixes[i])) == 0) {
            *prefix = strlen(learned_prefixes[i]);
            end = strrchr(name, '.');
        }
    if (!*prefix || end < name + *prefix) return NULL;
    const size_t length = (size_t)(end - name) - *prefix;
    *what = end;
    for (int i = 0; i < parts->local_count; i++)
        if (strlen(parts->locals[i].name) == length && memcmp(parts->locals[i].name, name + *prefix, length) == 0)
            return &parts->locals[i];
    return NULL;
}

static char *name_with(const char *name, size_t prefix, const char *middle, const char *what) {
    const size_t size = prefix + strlen(middle) + strlen(what) + 1;
    char *text = ct_malloc(size);
    if (!text) ct_fail(CT_ERR_MEMORY, "run", "out of memory");
    else snprintf(text, size, "%.*s%s%s", (int)prefix, name, middle, what);
    return text;
}

/* ---- Numbers by parameter ---- */

static bool is_learned(const ct__local *local) { return !local->buffer && ct_requires_grad(local->x); }

/* Values that end with one for each learned parameter, of the network as it is to that of the whole one, or back. NULL
 * after an error. */
static ct_tensor *by_parameter(const ct__parts *parts, ct_tensor *values, bool back) {
    int locals = 0, wholes = 0;
    for (int i = 0; i < parts->local_count; i++)
        if (is_learned(&parts->locals[i])) locals++, wholes += parts->locals[i].parts;
    const int64_t from = back ? wholes : locals, to = back ? locals : wholes, head = ct_numel(values) - from;
    int64_t *index = ct_malloc((size_t)(head + to + 1) * sizeof *index);
    if (!index || head < 0) {
        ct_free(index);
        ct_fail(CT_ERR_STATE, "run", "%lld numbers of an optimizer, whose network has %lld parameters",
                (long long)ct_numel(values), (long long)from);
        return NULL;
    }
    for (int64_t i = 0; i < head; i++) index[i] = i;
    int64_t n = head, local = 0, whole = 0;
    for (int i = 0; i < parts->local_count; i++) {
        if (!is_learned(&parts->locals[i])) continue;
        for (int k = 0; k < (back ? 1 : parts->locals[i].parts); k++) index[n++] = head + (back ? whole : local);
        local++;
        whole += parts->locals[i].parts;
    }
    ct_tensor *y = ct_index_select(values, 0, ct_from_data(index, CT_DIMS(n), CT_I64));
    ct_free(index);
    return y;
}

static bool is_by_parameter(const char *name) {
    return strcmp(name, steps_name) == 0 || strcmp(name, numbers_name) == 0;
}

/* ---- The state of the whole network, of which this rank has some ---- */

typedef struct source {
    ct_tensor *x; /* what this rank has; the local state's */
    const ct__part *part;
    bool spread; /* all ranks have it, and each writes a part */
} source;

typedef struct saving {
    const char *path;
    ct__parts parts;
    ct_state *local, *whole; /* of the whole: shapes, and values where they are not divided */
    source *sources;         /* by place in the whole */
    ct_safetensors_layout *layout;
    int fd;
    uint64_t crc, written; /* what this rank's bytes add to the checksum, and how many they are */
    /* while a tensor is written */
    const char *bytes;
    size_t width;
    uint64_t begin;
} saving;

static bool put_divided(saving *s, const ct__local *local, const char *name, size_t prefix, const char *what,
                        ct_tensor *x) {
    bool fine = true;
    for (int i = local->part; fine && i < local->part + local->parts; i++) {
        const ct__part *part = &s->parts.parts[i];
        char *full = name_with(name, prefix, part->name, what);
        s->sources[ct_state_count(s->whole)] = (source){.x = x, .part = part};
        fine = full && ct_state_put(s->whole, full, ct_expand(ct_scalar(0, ct_dtype_of(x)), part->cut.shape));
        ct_free(full);
    }
    return fine;
}

/* An optimizer's state of a parameter that this rank has whole, and learns a part of. */
static bool is_state_part(const ct__local *local, const char *name) {
    return local && local->learned_apart && strncmp(name, optim_prefix, sizeof optim_prefix - 1) == 0;
}

static bool put_state_part(saving *s, const ct__local *local, const char *name, ct_tensor *x) {
    s->sources[ct_state_count(s->whole)] = (source){.x = x, .part = &local->state};
    return ct_state_put(s->whole, name, ct_expand(ct_scalar(0, ct_dtype_of(x)), local->state.cut.shape));
}

static bool put_entry(saving *s, const char *name, ct_tensor *x) {
    size_t prefix;
    const char *what;
    const ct__local *local = owner_of(&s->parts, name, &prefix, &what);
    if (is_state_part(local, name) && ct_numel(x) == local->state.count) return put_state_part(s, local, name, x);
    if (local && local->divided && ct_numel(x) == ct_numel(local->x))
        return put_divided(s, local, name, prefix, what, x);
    if (s->parts.divided && is_by_parameter(name)) x = by_parameter(&s->parts, x, false);
    /* running statistics, and numbers of other kinds, are rank 0's; learned values are those of all */
    s->sources[ct_state_count(s->whole)] = (source){.x = x, .spread = local && !local->buffer};
    return x && ct_state_put(s->whole, name, x);
}

static bool describe(saving *s, const ct_run *run) {
    if (!(s->local = ct_state_new()) || !(s->whole = ct_state_new()) || !ct_run_put_state(run, s->local) ||
        !ct__parts_of(run->net, &s->parts))
        return false;
    const size_t room = (size_t)ct_state_count(s->local) * (size_t)(1 + s->parts.count); /* more than enough */
    if (!(s->sources = ct_calloc(room + 1, sizeof *s->sources)))
        return ct_fail(CT_ERR_MEMORY, "run", "%s: out of memory", s->path);
    for (int64_t i = 0; i < ct_state_count(s->local); i++)
        if (!put_entry(s, ct_state_name(s->local, i), ct_state_at(s->local, i))) return false;
    for (int64_t i = 0; i < ct_state_text_count(s->local); i++)
        if (!ct_state_put_text(s->whole, ct_state_text_name(s->local, i), ct_state_text_at(s->local, i))) return false;
    return (s->layout = ct_safetensors_plan(s->whole)) != NULL;
}

/* ---- Writing ---- */

static bool write_at(saving *s, const void *bytes, size_t size, uint64_t at) {
    const char *from = bytes;
    s->crc ^= ct__crc64_part(bytes, size, s->layout->file_bytes - at - size);
    s->written += size;
    while (size > 0) {
        const ssize_t put = pwrite(s->fd, from, size > (1u << 30) ? 1u << 30 : size, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return ct_fail(CT_ERR_IO, "run", "%s: cannot be written: %s", s->path, strerror(errno));
        from += put;
        at += (uint64_t)put;
        size -= (size_t)put;
    }
    return true;
}

static bool write_run(void *context, int64_t from, int64_t to, int64_t count) {
    saving *s = context;
    return write_at(s, s->bytes + (size_t)from * s->width, (size_t)count * s->width,
                    s->begin + (uint64_t)to * s->width);
}

static bool write_entry(saving *s, int64_t i) {
    const source *from = &s->sources[i];
    const int64_t rank = ct_dist_rank(), size = ct_dist_size(), elements = ct_numel(from->x);
    const int64_t first = from->spread ? elements * rank / size : 0,
                  end = from->spread ? elements * (rank + 1) / size : elements;
    if (from->part ? !from->part->first_copy || from->part->count == 0 : first == end || (!from->spread && rank > 0))
        return true;
    bool fine = false;
    ct_scope {
        ct_tensor *here = ct_contiguous(ct_to(ct_detach(from->x), (ct_device){CT_CPU, 0}));
        s->bytes = here ? ct_data(here) : NULL;
        s->width = ct_dtype_size(ct_dtype_of(from->x));
        s->begin = s->layout->begin[i];
        fine = s->bytes &&
               (from->part ? ct__part_runs(from->part, write_run, s) : write_run(s, first, first, end - first));
    }
    return fine;
}

static bool write_all(saving *s, const char *temporary) {
    s->fd = open(temporary, O_WRONLY | O_CLOEXEC);
    if (s->fd < 0) return ct_fail(CT_ERR_IO, "run", "%s: cannot be opened: %s", temporary, strerror(errno));
    bool fine = ct_dist_rank() > 0 || write_at(s, s->layout->header, s->layout->header_bytes, 0);
    for (int64_t i = 0; fine && i < ct_state_count(s->whole); i++) fine = write_entry(s, i);
    if (fine && fsync(s->fd) != 0)
        fine = ct_fail(CT_ERR_IO, "run", "%s: cannot be synced: %s", s->path, strerror(errno));
    close(s->fd);
    return fine;
}

/* ---- Agreeing ---- */

/* Whether all ranks have come this far without an error, and what they say: n numbers each, rank by rank, into all. Also
 * of a rank with an error, which it keeps. */
static bool meet(bool fine, const char *path, const int64_t *mine, int n, int64_t *all) {
    const ct_code code = ct_error_code();
    char text[900], op[64];
    const bool failed = !ct_ok() || !fine;
    snprintf(text, sizeof text, "%s", ct_error());
    snprintf(op, sizeof op, "%s", ct_error_op());
    ct_error_clear();
    int64_t told[4] = {failed};
    memcpy(told + 1, mine, (size_t)n * sizeof *mine);
    const int size = ct_dist_size();
    int64_t *heard = ct_calloc((size_t)size * (size_t)(1 + n), sizeof *heard);
    int bad = -1;
    bool right = heard || ct_fail(CT_ERR_MEMORY, "run", "out of memory");
    ct_scope {
        ct_tensor *gathered = right ? ct_dist_all_gather(ct_from_data(told, CT_DIMS(1 + n), CT_I64), NULL) : NULL;
        right = gathered && ct_read(gathered, heard, (size_t)size * (size_t)(1 + n) * sizeof *heard);
    }
    for (int r = 0; right && r < size; r++) {
        if (heard[r * (1 + n)] && bad < 0) bad = r;
        memcpy(all + (size_t)r * (size_t)n, heard + (size_t)r * (size_t)(1 + n) + 1, (size_t)n * sizeof *all);
    }
    ct_free(heard);
    if (failed) {
        const size_t prefix = strlen(op);
        const bool named = prefix && strncmp(text, op, prefix) == 0 && strncmp(text + prefix, ": ", 2) == 0;
        ct_error_clear();
        return ct_fail(code == CT_OK ? CT_ERR_STATE : code, op, "%s", named ? text + prefix + 2 : text);
    }
    if (!right) return false;
    return bad < 0 || ct_fail(CT_ERR_IO, "run", "%s: rank %d could not write its part", path, bad);
}

static bool learn_temporary(const char *mine, char *all, size_t room) {
    bool right = false;
    ct_scope {
        snprintf(all, room, "%s", mine);
        ct_tensor *first = ct_dist_broadcast(ct_from_data(all, CT_DIMS((int64_t)room), CT_U8), 0, NULL);
        right = first && ct_read(first, all, room);
    }
    return right;
}

/* What ranks have to agree on: the names of the tensors, where each is in the data, and where that ends. */
static int64_t hash_of(const saving *s) {
    const uint64_t bytes = s->layout->file_bytes - s->layout->header_bytes;
    uint64_t crc = ct__crc64(0, &bytes, sizeof bytes);
    for (int64_t i = 0; i < ct_state_count(s->whole); i++) {
        const char *name = ct_state_name(s->whole, i);
        const uint64_t begin = s->layout->begin[i] - s->layout->header_bytes;
        crc = ct__crc64(ct__crc64(crc, name, strlen(name) + 1), &begin, sizeof begin);
    }
    return (int64_t)crc;
}

/* Texts are rank 0's, and with them the length of the header. */
static bool take_plan(saving *s, const int64_t *plans) {
    const uint64_t header = (uint64_t)plans[1], mine = s->layout->header_bytes;
    for (int r = 1; r < ct_dist_size(); r++)
        if (plans[2 * r] != plans[0])
            return ct_fail(CT_ERR_STATE, "run", "%s: ranks 0 and %d would write other tensors", s->path, r);
    for (int64_t i = 0; i < ct_state_count(s->whole); i++) s->layout->begin[i] += header - mine;
    s->layout->file_bytes += header - mine;
    return true;
}

static bool save(saving *s, const ct_run *run) {
    enum { ROOM = 4096, DIGITS = 16 };
    const int rank = ct_dist_rank(), size = ct_dist_size();
    ct__output output = {.fd = -1};
    char temporary[ROOM] = "";
    int64_t *all = ct_calloc((size_t)size, 2 * sizeof *all);
    if (!all) return ct_fail(CT_ERR_MEMORY, "run", "out of memory");
    bool fine = ct_ok() && describe(s, run); /* who cannot go on tells the others */
    const int64_t plan[2] = {fine ? hash_of(s) : 0, fine ? (int64_t)s->layout->header_bytes : 0};
    fine = meet(fine, s->path, plan, 2, all) && take_plan(s, all);
    if (!fine) {
        ct_free(all);
        return false;
    }
    if (rank == 0) {
        fine = ct__output_open(&output, s->path, true, "run");
        if (fine && (!output.temporary || strlen(output.temporary) >= ROOM))
            fine = ct_fail(CT_ERR_VALUE, "run", "%s: ranks write to files, with paths of less than %d bytes", s->path,
                           ROOM);
        if (fine && ftruncate(output.fd, (off_t)s->layout->file_bytes) != 0)
            fine = ct_fail(CT_ERR_IO, "run", "%s: cannot be written: %s", s->path, strerror(errno));
    }
    fine =
        meet(fine, s->path, plan, 0, all) && learn_temporary(output.temporary ? output.temporary : "", temporary, ROOM);
    fine = fine && write_all(s, temporary);
    const int64_t added[2] = {(int64_t)s->crc, (int64_t)s->written};
    fine = meet(fine, s->path, added, 2, all);
    if (rank == 0) {
        char digits[DIGITS + 1];
        uint64_t crc = ct__crc64_zeros(s->layout->file_bytes), written = 0;
        for (int r = 0; fine && r < size; r++) crc ^= (uint64_t)all[2 * r], written += (uint64_t)all[2 * r + 1];
        if (fine && written != s->layout->file_bytes)
            fine = ct_fail(CT_ERR_STATE, "run", "%s: ranks have written %llu of %llu bytes: nobody has the rest",
                           s->path, (unsigned long long)written, (unsigned long long)s->layout->file_bytes);
        snprintf(digits, sizeof digits, "%016" PRIx64, crc);
        fine = fine && ct__output_patch(&output, digits, DIGITS, (int64_t)s->layout->checksum_at);
        fine = ct__output_close(&output, fine) && fine;
    }
    fine = meet(fine, s->path, plan, 0, all);
    ct_free(all);
    return fine;
}

bool ct_dist_run_save(const ct_run *run, const char *folder, const char *name) {
    char *path = ct_ok() ? ct__file_in(folder, name, ".safetensors", "run") : NULL;
    saving s = {.path = path ? path : name ? name : "a checkpoint"};
    if (path && ct_dist_rank() == 0) ct__output_clean(folder, NULL);
    bool fine = false;
    ct_scope
        ct_no_grad
            fine = save(&s, run);
    ct_state_free(s.local);
    ct_state_free(s.whole);
    ct__parts_free(&s.parts);
    ct_free(s.sources);
    ct_safetensors_layout_free(s.layout);
    ct_free(path);
    return fine;
}

/* ---- Reading ---- */

typedef struct filling {
    const char *from;
    char *to;
    size_t width;
} filling;

static bool copy_run(void *context, int64_t from, int64_t to, int64_t count) {
    const filling *f = context;
    memcpy(f->to + (size_t)from * f->width, f->from + (size_t)to * f->width, (size_t)count * f->width);
    return true;
}

/* A divided tensor of that shape from those of the file that its n parts are in. NULL after an error. */
static ct_tensor *assemble(const ct__part *parts, int n, ct_dims shape, const ct_state *stored, const char *name,
                           size_t prefix, const char *what, const char *path) {
    ct_tensor *made = NULL;
    for (int i = 0; i < n; i++) {
        const ct__part *part = &parts[i];
        char *full = name_with(name, prefix, part->name, what);
        ct_tensor *x = full ? ct_state_get(stored, full) : NULL;
        const ct_dims is = x ? ct_shape(x) : (ct_dims){0}, wanted = part->cut.shape;
        if (full && (!x || is.n != wanted.n || memcmp(is.d, wanted.d, (size_t)is.n * sizeof *is.d) != 0))
            ct_fail(CT_ERR_SHAPE, "run", "%s: \"%s\" is %s, expected %s", path, full, x ? ct_tensor_text(x) : "missing",
                    ct_dims_text(wanted));
        if (x && made && ct_dtype_of(x) != ct_dtype_of(made))
            ct_fail(CT_ERR_DTYPE, "run", "%s: \"%s\" is %s, and what is divided with it %s", path, full,
                    ct_tensor_text(x), ct_dtype_name(ct_dtype_of(made)));
        ct_free(full);
        if (!ct_ok()) return NULL;
        if (!made) made = ct_zeros(shape, .dtype = ct_dtype_of(x));
        if (made && part->count == 0) continue;
        filling f = {.from = ct_data(x), .to = made ? ct_data_mut(made) : NULL, .width = ct_dtype_size(ct_dtype_of(x))};
        if (!f.from || !f.to) return NULL;
        ct__part_runs(part, copy_run, &f);
    }
    return made;
}

/* The part that an entry of the file belongs to: its first one stands for the local tensor. */
static const ct__local *first_part_of(const ct__parts *parts, const char *name, size_t *prefix, const char **what,
                                      bool *first) {
    ct__local whole = {0};
    ct__parts one = {.locals = &whole, .local_count = 1};
    for (int i = 0; i < parts->count; i++) {
        const ct__local *local = &parts->locals[parts->parts[i].local];
        whole.name = parts->parts[i].name;
        if (!local->divided || !owner_of(&one, name, prefix, what)) continue;
        *first = local->part == i;
        return local;
    }
    return NULL;
}

/* What the file says of the whole network, as this rank has it. */
static bool take_apart(const ct__parts *parts, const ct_state *stored, ct_state *local, const char *path) {
    bool fine = true;
    for (int64_t i = 0; fine && i < ct_state_count(stored); i++) {
        const char *name = ct_state_name(stored, i), *what = "";
        size_t prefix = 0;
        bool first = false;
        ct_scope {
            const ct__local *whole = owner_of(parts, name, &prefix, &what);
            const bool state = is_state_part(whole, name);
            const ct__local *owner = state ? NULL : first_part_of(parts, name, &prefix, &what, &first);
            ct_tensor *x = ct_state_at(stored, i);
            if (state) {
                x = assemble(&whole->state, 1, CT_DIMS(whole->state.count), stored, name, prefix, what, path);
                fine = x && ct_state_put(local, name, x);
            } else if (owner && first) {
                char *full = name_with(name, prefix, owner->name, what);
                x = full ? assemble(&parts->parts[owner->part], owner->parts, ct_shape(owner->x), stored, name, prefix,
                                    what, path)
                         : NULL;
                fine = x && ct_state_put(local, full, x);
                ct_free(full);
            } else if (!owner) {
                if (is_by_parameter(name)) x = by_parameter(parts, x, true);
                fine = x && ct_state_put(local, name, x);
            }
        }
    }
    for (int64_t i = 0; fine && i < ct_state_text_count(stored); i++)
        fine = ct_state_put_text(local, ct_state_text_name(stored, i), ct_state_text_at(stored, i));
    return fine;
}

bool ct_dist_run_load(ct_run *run, const char *path) {
    ct__parts parts = {0};
    ct_state *stored = ct_ok() ? ct_run_open(path) : NULL, *local = NULL;
    bool fine =
        stored && (run || ct_fail(CT_ERR_NULL, "run", "argument run is NULL")) && ct__parts_of(run->net, &parts);
    if (fine && parts.divided)
        ct_no_grad
            fine = (local = ct_state_new()) && take_apart(&parts, stored, local, path);
    fine = fine && ct_run_take_state(run, local ? local : stored, path);
    ct_state_free(local);
    ct_state_free(stored);
    ct__parts_free(&parts);
    return fine;
}
