/* Which part of the whole network a rank has: a walk over its modules, into those that are sharded. */
#include "dist/parts.h"

#include <stdio.h>
#include <string.h>

static bool grow(void **list, int count, size_t size) {
    if (count & (count - 1)) return true; /* it grows at powers of two */
    void *larger = ct_realloc(*list, (size_t)(count ? 2 * count : 1) * size);
    if (!larger) return ct_fail(CT_ERR_MEMORY, "dist", "no memory for %d parameters", count + 1);
    *list = larger;
    return true;
}

static char *join(const char *path, const char *name) {
    const size_t size = strlen(path) + strlen(name) + 2;
    char *text = ct_malloc(size);
    if (!text) ct_fail(CT_ERR_MEMORY, "dist", "out of memory");
    else snprintf(text, size, "%s%s%s", path, *path && *name ? "." : "", name);
    return text;
}

/* Whether rank 0 of the job is in it: of those that have the same part, the first is in one with rank 0. */
static bool has_first(const ct_dist_group *group) {
    if (!group || ct__job_state.world.size == 1) return true;
    for (int i = 0; i < group->size; i++)
        if (group->ranks[i] == 0) return true;
    return false;
}

/* sharded: the elements are shared in equal parts by the ranks of `shards`. Of what is cut as well there is one copy, so
 * that nobody has to know who else has it. False after an error. */
static bool count_copies(ct__part *part, const char *name, bool sharded, ct_dist_group *shards) {
    const int ranks = ct_dist_size(), cut = part->cut.ranks, shared = sharded ? ct_dist_group_size(shards) : 1;
    if (sharded && cut > 1 && cut * shared != ranks)
        return ct_fail(CT_ERR_STATE, "dist",
                       "'%s' is cut among %d ranks and shared among %d; together they have to be all %d", name, cut,
                       shared, ranks);
    part->copies = ranks / cut / shared;
    part->first_copy = (!sharded || has_first(shards)) && (part->cut.ranks == 1 || has_first(part->cut.group));
    part->first_copy = part->first_copy || part->copies == 1;
    return true;
}

static bool add_part(ct__parts *parts, char *name, ct__part part, bool sharded, ct_dist_group *shards) {
    part.name = name;
    if (!name || !count_copies(&part, name, sharded, shards) ||
        !grow((void **)&parts->parts, parts->count, sizeof part)) {
        ct_free(name);
        return false;
    }
    parts->parts[parts->count++] = part;
    parts->locals[parts->local_count - 1].parts++;
    return true;
}

/* One local tensor; its parts follow. False: it was there already, or there is no memory. */
static bool add_local(ct__parts *parts, const char *path, const char *name, ct_tensor *x, bool buffer) {
    for (int i = 0; i < parts->local_count; i++)
        if (parts->locals[i].x == x) return false; /* tied: it goes by its first name */
    char *text = join(path, name);
    if (!text || !grow((void **)&parts->locals, parts->local_count, sizeof *parts->locals)) {
        ct_free(text);
        return false;
    }
    parts->locals[parts->local_count++] = (ct__local){.name = text, .x = x, .buffer = buffer, .part = parts->count};
    return true;
}

typedef struct inside {
    const ct_module *owner;
    char *path; /* found */
} inside;

static bool find_owner(void *context, const char *path, ct_module *module) {
    inside *search = context;
    if (module != search->owner) return true;
    search->path = join(path, "");
    return false;
}

/* The shard of a module: what this rank has of each parameter inside. */
static bool add_shard(ct__parts *parts, const char *path, ct_module *module) {
    const ct__place *places;
    ct_module *inner;
    ct_dist_group *group;
    const int count = ct__sharded_places(module, &places, &inner, &group);
    ct_tensor *shard = ct_module_param(module, 0);
    const int64_t mine = ct_numel(shard), from = mine * ct_dist_group_rank(group), to = from + mine;
    int64_t end = 0;
    if (!add_local(parts, path, "shard", shard, false)) return ct_ok();
    parts->locals[parts->local_count - 1].divided = parts->divided = true;
    for (int i = 0; i < count; i++) {
        const ct__place *p = &places[i];
        const int64_t begin = p->offset > from ? p->offset : from,
                      stop = p->offset + p->elements < to ? p->offset + p->elements : to;
        inside search = {.owner = p->owner};
        ct__part part = {.local = parts->local_count - 1};
        if (p->offset < end) continue; /* it goes by two names, and was there before */
        end = p->offset + p->elements;
        if (begin < stop) part.at = begin - from, part.count = stop - begin, part.first = begin - p->offset;
        ct__cut_of(p->owner, p->index, p->shape, &part.cut);
        ct_module_apply(inner, find_owner, &search);
        char *above = search.path ? join(path, search.path) : NULL;
        char *name = above ? join(above, ct_module_param_name(p->owner, p->index)) : NULL;
        ct_free(search.path);
        ct_free(above);
        if (!add_part(parts, name, part, true, group)) return false;
    }
    return true;
}

/* What an optimizer has for a parameter of which it learns a run: like the parameter, but of fewer elements. */
static bool learn_apart(ct__local *local, const ct_module *owner, const ct__part *whole) {
    ct_dist_group *group;
    if (local->buffer || !ct__learned_apart(owner, &group)) return true;
    local->learned_apart = true;
    local->state = *whole;
    local->state.name = local->name;
    ct_division_range(ct_module_division(owner), whole->count, &local->state.first, &local->state.count);
    return count_copies(&local->state, local->name, true, group);
}

static bool add_module(void *context, const char *path, ct_module *module) {
    ct__parts *parts = context;
    if (ct__is_sharded(module)) return add_shard(parts, path, module);
    const int params = ct_module_param_count(module), buffers = ct_module_buffer_count(module);
    for (int i = 0; i < params + buffers; i++) {
        const bool buffer = i >= params;
        ct_tensor *x = buffer ? ct_module_buffer(module, i - params) : ct_module_param(module, i);
        const char *name = buffer ? ct_module_buffer_name(module, i - params) : ct_module_param_name(module, i);
        if (!add_local(parts, path, name, x, buffer)) {
            if (!ct_ok()) return false;
            continue;
        }
        ct__part part = {.local = parts->local_count - 1, .count = ct_numel(x)};
        ct__local *local = &parts->locals[part.local];
        local->divided = ct__cut_of(module, buffer ? -1 : i, ct_shape(x), &part.cut);
        if (!learn_apart(local, module, &part)) return false;
        parts->divided = parts->divided || local->divided || local->learned_apart;
        if (!add_part(parts, join(local->name, ""), part, false, NULL)) return false;
    }
    return true;
}

bool ct__parts_of(ct_module *net, ct__parts *parts) {
    *parts = (ct__parts){0};
    return ct_module_apply(net, add_module, parts);
}

void ct__parts_free(ct__parts *parts) {
    for (int i = 0; i < parts->local_count; i++) ct_free(parts->locals[i].name);
    for (int i = 0; i < parts->count; i++) ct_free(parts->parts[i].name);
    ct_free(parts->locals);
    ct_free(parts->parts);
    *parts = (ct__parts){0};
}

bool ct__part_runs(const ct__part *part, bool (*fn)(void *context, int64_t from, int64_t to, int64_t count),
                   void *context) {
    const ct__cut *cut = &part->cut;
    for (int64_t done = 0; done < part->count;) {
        const int64_t i = part->first + done, left = cut->run - i % cut->run;
        const int64_t n = left < part->count - done ? left : part->count - done;
        if (!fn(context, part->at + done, i / cut->run * cut->stride + i % cut->run + cut->start, n)) return false;
        done += n;
    }
    return true;
}
