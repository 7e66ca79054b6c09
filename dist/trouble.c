/* When ranks disagree, or one does not come: who it is, and a text that says so on every rank. Nothing can be
 * exchanged afterwards. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "dist/dist.h"

enum { TAG_TROUBLE = 7, MOST_NAMED = 8 };

const char *ct__kind_name(ct__dist_kind kind) {
    static const char *const names[CT__KINDS] = {
        "dist_all_reduce", "dist_broadcast", "dist_all_gather", "dist_reduce_scatter", "dist_all_to_all",
        "dist_barrier",    "dist_send",      "dist_receive",    "dist_split",          "dist_end"};
    return kind < CT__KINDS ? names[kind] : "dist";
}

/* ---- Texts ---- */

typedef struct writer {
    char *text;
    size_t room, length;
} writer;

static void put(writer *w, const char *format, ...) CT_PRINTF(2, 3);
static void put(writer *w, const char *format, ...) {
    va_list list;
    va_start(list, format);
    const int n = w->length < w->room ? vsnprintf(w->text + w->length, w->room - w->length, format, list) : 0;
    va_end(list);
    if (n > 0) w->length += (size_t)n;
}

void ct__call_describe(const ct__call_text *call, char *out, size_t room) {
    static const char *const reductions[] = {"sum", "mean", "max", "min", "product"};
    const ct__dist_kind kind = (ct__dist_kind)call->kind;
    writer w = {out, room, 0};
    const bool reduces = kind == CT__ALL_REDUCE || kind == CT__REDUCE_SCATTER;
    put(&w, "%s", ct__kind_name(kind) + strlen("dist_"));
    if (reduces && call->reduction >= 0 && call->reduction <= CT_DIST_PRODUCT)
        put(&w, " (%s)", reductions[call->reduction]);
    if (kind == CT__BROADCAST) put(&w, " from rank %d", call->root);
    if (kind == CT__SEND) put(&w, " to rank %d", call->root);
    if (kind == CT__RECEIVE) put(&w, " from rank %d", call->root);
    if (kind < CT__BARRIER || kind == CT__SEND || kind == CT__RECEIVE) {
        ct_dims dims = {.n = call->ndim < CT_MAX_DIMS ? call->ndim : CT_MAX_DIMS};
        for (int i = 0; i < dims.n; i++) dims.d[i] = call->dims[i];
        if (call->name[0]) put(&w, " of '%s',", call->name);
        else put(&w, " of");
        put(&w, " %s%s", ct_dtype_name((ct_dtype)call->dtype), ct_dims_text(dims));
    }
    if (call->sequence) put(&w, ", call %llu", (unsigned long long)call->sequence);
}

/* "rank 2", "ranks 0, 1 and 3": those of n whose mark is set. */
static void put_ranks(writer *w, const bool *marked, const int *ranks, int n) {
    int count = 0, said = 0;
    for (int i = 0; i < n; i++) count += marked[i];
    put(w, count == 1 ? "rank " : "ranks ");
    for (int i = 0; i < n && said < MOST_NAMED; i++) {
        if (!marked[i]) continue;
        said++;
        put(w, "%s%d", said == 1 ? "" : said == count ? " and " : ", ", ranks ? ranks[i] : i);
    }
    if (count > said) put(w, " and %d more", count - said);
}

bool ct__break(const char *op, ct_code code, const char *text) {
    ct__job *job = &ct__job_state;
    snprintf(job->broken, sizeof job->broken, "%s: %s", op, text);
    for (ct_dist_group *g = &job->world; g; g = g->next) {
        for (ct__flight *f = g->first; f; f = f->next) f->stage = CT__FAILED;
        g->first = g->last = NULL;
    }
    ct__flights_fail_queued();
    return ct_fail(code, op, "%s", text);
}

static bool fail(ct__flight *flight, const char *text) {
    flight->stage = CT__FAILED;
    return ct__break(ct__kind_name(flight->transfer.kind), CT_ERR_STATE, text);
}

bool ct__fail_engine(const ct__flight *flight, const char *problem) {
    char call[256], text[640];
    ct__call_describe(&flight->text, call, sizeof call);
    snprintf(text, sizeof text, "%s: %s: %s", call, ct_dist_engine(), problem);
    return ct__break(ct__kind_name(flight->transfer.kind), CT_ERR_STATE, text);
}

/* ---- Ranks that disagree ---- */

static void put_classes(writer *w, const ct__call_text *calls, int n, const int *ranks) {
    bool *marked = ct_calloc((size_t)n, sizeof *marked), *said = ct_calloc((size_t)n, sizeof *said);
    bool first = true;
    while (marked && said) { /* the largest set of ranks that call the same, and so on */
        int best = -1, most = 0;
        for (int i = 0; i < n; i++) {
            int count = 0;
            for (int j = 0; j < n && !said[i]; j++) count += memcmp(&calls[i], &calls[j], sizeof *calls) == 0;
            if (count > most) most = count, best = i;
        }
        if (best < 0 || w->length + 300 > w->room) break;
        char call[256];
        ct__call_describe(&calls[best], call, sizeof call);
        for (int j = 0; j < n; j++) {
            marked[j] = memcmp(&calls[best], &calls[j], sizeof *calls) == 0;
            said[j] |= marked[j];
        }
        if (!first) put(w, "; ");
        first = false;
        put_ranks(w, marked, ranks, n);
        put(w, " %s %s", most == 1 ? "calls" : "call", call);
    }
    ct_free(marked);
    ct_free(said);
}

static bool gather_calls(ct__flight *flight, ct__call_text *calls) {
    const ct__transport *transport = ct__job_state.transport;
    ct__transfer gather = {
        .kind = CT__ALL_GATHER, .dtype = CT_U8, .count = (int64_t)sizeof *calls, .in = &flight->text, .out = calls};
    ct__request request;
    bool done = false;
    const double limit = ct__seconds() + ct__job_state.timeout;
    if (transport->collective(flight->group->number, CT__TROUBLE, &gather, &request)) return false;
    while (!done && ct__seconds() < limit) {
        if (transport->test(&request, &done)) return false;
        sched_yield();
    }
    return done;
}

bool ct__fail_disagreement(ct__flight *flight) {
    char text[1000];
    writer w = {text, sizeof text, 0};
    const ct_dist_group *group = flight->group;
    put(&w, "ranks disagree: ");
    if (flight->transfer.kind == CT__SEND || flight->transfer.kind == CT__RECEIVE) {
        const ct__call_text both[2] = {flight->text, flight->comparison->theirs};
        const int ranks[2] = {group->ranks[group->rank], group->ranks[flight->transfer.root]};
        put_classes(&w, both, 2, ranks);
        return fail(flight, text);
    }
    ct__call_text *calls = ct_calloc((size_t)group->size, sizeof *calls);
    if (calls && gather_calls(flight, calls)) put_classes(&w, calls, group->size, group->ranks);
    else {
        char call[256];
        ct__call_describe(&flight->text, call, sizeof call);
        put(&w, "rank %d calls %s, and others something else", group->ranks[group->rank], call);
    }
    ct_free(calls);
    return fail(flight, text);
}

/* ---- Ranks that do not come ---- */

bool ct__trouble_heard(void) {
    int from = -1;
    const ct__job *job = &ct__job_state;
    return job->transport && !job->transport->probe(0, CT__TROUBLE, TAG_TROUBLE, &from) && from >= 0;
}

/* Tells every rank of the job what this one waits for, and hears it of them for a while. */
static void find_silent_ranks(ct__flight *flight, bool *heard, ct__call_text *calls, double seconds) {
    static ct__call_text mine; /* messages may be on their way until the process ends */
    const ct__job *job = &ct__job_state;
    const int ranks = job->world.size;
    mine = flight->text;
    for (int i = 0; i < ranks; i++) {
        ct__request ignored;
        if (i != job->world.rank) job->transport->send(0, CT__TROUBLE, &mine, sizeof mine, i, TAG_TROUBLE, &ignored);
    }
    heard[job->world.rank] = true;
    int known = 1;
    for (const double limit = ct__seconds() + seconds; known < ranks && ct__seconds() < limit; sched_yield()) {
        int from = -1;
        ct__request request;
        bool done = false;
        if (job->transport->probe(0, CT__TROUBLE, TAG_TROUBLE, &from)) return;
        if (from < 0) continue;
        if (job->transport->receive(0, CT__TROUBLE, &calls[from], sizeof *calls, from, TAG_TROUBLE, &request)) return;
        while (!done)
            if (job->transport->test(&request, &done)) return;
        known += !heard[from];
        heard[from] = true;
    }
}

bool ct__fail_missing(ct__flight *flight, bool told) {
    const ct__job *job = &ct__job_state;
    const ct_dist_group *group = flight->group;
    char text[1000], call[256];
    writer w = {text, sizeof text, 0};
    const double patience = job->timeout > 2 ? 1 : job->timeout / 2;
    bool *heard = ct_calloc((size_t)job->world.size, sizeof *heard);
    bool *silent = ct_calloc((size_t)group->size, sizeof *silent);
    ct__call_text *calls = ct_calloc((size_t)job->world.size, sizeof *calls);
    ct__call_describe(&flight->text, call, sizeof call);
    put(&w, "%s: ", call);
    if (heard && silent && calls) {
        int missing = 0, elsewhere = -1;
        find_silent_ranks(flight, heard, calls, patience);
        for (int i = 0; i < group->size; i++) {
            const bool concerned = flight->transfer.kind == CT__SEND || flight->transfer.kind == CT__RECEIVE
                                       ? i == flight->transfer.root
                                       : i != group->rank;
            const int rank = group->ranks[i];
            if (!concerned) continue;
            silent[i] = !heard[rank];
            missing += silent[i];
            if (heard[rank] && memcmp(&calls[rank], &flight->text, sizeof *calls) != 0) elsewhere = rank;
        }
        if (missing) {
            put_ranks(&w, silent, group->ranks, group->size);
            put(&w, " %s not come to it within %g s, and %s not answer: dead, stopped, or busy with something else",
                missing == 1 ? "has" : "have", job->timeout, missing == 1 ? "does" : "do");
        } else if (elsewhere >= 0) {
            char other[256];
            ct__call_describe(&calls[elsewhere], other, sizeof other);
            put(&w, "rank %d waits in %s instead (time limit %g s)", elsewhere, other, job->timeout);
        } else put(&w, "it did not end within %g s%s", job->timeout, told ? " on another rank" : "");
    } else put(&w, "it did not end within %g s", job->timeout);
    ct_free(heard);
    ct_free(silent);
    ct_free(calls);
    return fail(flight, text);
}
