/* Predicts the time and memory of a data parallel step for any number of ranks, from what bench/dist has measured.
 *     cc -O2 bench/dist_model.c -lm -o dist_model
 *     ./dist_model <lines                      lines of bench/dist with as many items per rank: one rank, and several
 *     ./dist_model --ranks 16 <lines           then also so many on this machine, where no line is as full
 *     ./dist_model --network 25 5 16 <lines    then also 64, 1,024 and 8,192 ranks: GB/s and microseconds between machines,
 *                                              and ranks of a machine
 *
 * The model. A step is compute and the part of the exchange that backward does not hide. Compute is what a rank takes for
 * its items while as many others of its machine compute too, without exchange: processors share memory, and often
 * arithmetic. The exchange is a ring: of n ranks each moves 2 (n - 1) / n times the gradients, at the rate that the line
 * with the fewest ranks above one shows; between m machines another ring follows, 2 (m - 1) / m times the gradients at the
 * network's. Each bucket costs a call as well, measured with one number and growing by log2(ranks), and between machines 4
 * log2(machines) of the network's latencies, for comparing calls and for the sum. Compute of more ranks than any line has is
 * what the lines grow by with log2(ranks), a guess: measure it where it can be. Two thirds of compute are
 * backward, which hides all but the last bucket of what fits into it, where there are more processors than threads that
 * compute; otherwise the exchange takes the time of those. Memory: parameters, gradients, small ones once more in their
 * buckets, and Adam's state. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, BUCKET = 8 << 20 };

typedef struct line {
    char model[32];
    int ranks, threads;
    double items, bytes, compute, exchange, step, call; /* milliseconds */
    int processors;
} line;

typedef struct machine {
    double rate;    /* bytes per ms that a rank moves within a machine */
    double call;    /* ms of a call within a machine, for each doubling of ranks */
    double network; /* bytes per ms between machines */
    double far;     /* ms of a message between them */
    int ranks;      /* of a machine */
} machine;

static double ring(double ranks) { return 2 * (ranks - 1) / ranks; }

static double exchange_ms(const machine *m, double bytes, int ranks) {
    const int here = ranks < m->ranks ? ranks : m->ranks;
    const double machines = ceil((double)ranks / m->ranks), buckets = ceil(bytes / BUCKET);
    double ms = ring(here) * bytes / m->rate;
    if (machines > 1) ms += ring(machines) * bytes / m->network;
    return ms + buckets * (log2(here) * m->call + 4 * log2(machines) * m->far);
}

/* The line with the most ranks that a machine with so many has: its compute is that of a machine that is as full. */
static const line *as_full(const line *lines, int n, int ranks) {
    const line *best = NULL;
    for (int i = 0; i < n; i++)
        if (lines[i].ranks <= ranks && (!best || lines[i].ranks > best->ranks)) best = &lines[i];
    return best;
}

/* For a machine that is fuller than any line: compute = a + b log2(ranks) by least squares. */
static line extrapolated(const line *lines, int n, int ranks) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < n; i++) {
        const double x = log2(lines[i].ranks), y = lines[i].compute;
        sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    const double b = (n * sxy - sx * sy) / (n * sxx - sx * sx), a = (sy - b * sx) / n;
    line made = *as_full(lines, n, ranks);
    if (made.ranks < ranks) made.compute = a + b * log2(ranks), made.ranks = ranks;
    return made;
}

static double step_ms(const machine *m, const line *full, int ranks) {
    const double all = exchange_ms(m, full->bytes, ranks), last = all / ceil(full->bytes / BUCKET);
    const double behind = full->ranks * full->threads < full->processors ? full->compute * 2 / 3 : 0;
    if (ranks == 1) return full->compute;
    return full->compute + (all - last > behind ? all - behind : last);
}

int main(int argc, char **argv) {
    line lines[MOST];
    int n = 0;
    char text[512];
    while (n < MOST && fgets(text, sizeof text, stdin)) {
        line *l = &lines[n];
        const char *processors = strstr(text, "processors "), *call = strstr(text, "call_us ");
        *l = (line){.processors = processors ? atoi(processors + strlen("processors ")) : 0,
                    .call = call ? 1e-3 * atof(call + strlen("call_us ")) : 0};
        n += sscanf(text,
                    "model %31s ranks %d threads %d items %lf bytes %lf compute_ms %lf exchange_ms %lf step_ms %lf",
                    l->model, &l->ranks, &l->threads, &l->items, &l->bytes, &l->compute, &l->exchange, &l->step) == 8;
    }
    const line *one = NULL, *known = NULL;
    for (int i = 0; i < n; i++) {
        if (lines[i].ranks == 1) one = &lines[i];
        if (lines[i].ranks > 1 && (!known || lines[i].ranks < known->ranks)) known = &lines[i];
    }
    if (!one || !known) {
        fprintf(stderr, "lines of bench/dist with one rank and with several are needed on standard input\n");
        return 2;
    }
    const double calls = ceil(known->bytes / BUCKET) * known->call;
    machine m = {.rate = ring(known->ranks) * known->bytes / (known->exchange - calls),
                 .call = known->call / log2(known->ranks),
                 .ranks = 1 << 30};
    printf("%s, %.0f items per rank: one rank computes %.1f ms; %.1f MB of gradients, of which a rank moves %.1f GB/s; "
           "a call "
           "of %d takes %.0f us\n",
           one->model, one->items, one->compute, one->bytes / 1e6, m.rate / 1e6, known->ranks, 1e3 * known->call);
    printf("%8s %12s %12s %8s\n", "ranks", "measured ms", "predicted ms", "off");
    for (int i = 0; i < n; i++) {
        const double predicted = step_ms(&m, as_full(lines, n, lines[i].ranks), lines[i].ranks),
                     off = predicted / lines[i].step - 1;
        printf("%8d %12.1f %12.1f %+7.1f%%\n", lines[i].ranks, lines[i].step, predicted, 100 * off);
    }
    if (argc == 3 && !strcmp(argv[1], "--ranks") && atoi(argv[2]) > 0) {
        const line full = extrapolated(lines, n, atoi(argv[2]));
        printf("%8d %12s %12.1f\n", full.ranks, "", step_ms(&m, &full, atoi(argv[2])));
    }
    if (argc == 5 && !strcmp(argv[1], "--network")) {
        m.network = atof(argv[2]) * 1e6, m.far = atof(argv[3]) * 1e-3, m.ranks = atoi(argv[4]);
        if (!(m.network > 0) || m.ranks < 1) return 2;
        const int many[] = {64, 1024, 8192};
        printf("%8s %12s %12s %16s %22s\n", "ranks", "predicted ms", "efficiency", "MB of each rank",
               "MB, sharded (stage 3)");
        for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
            const line *full = as_full(lines, n, m.ranks);
            const double predicted = step_ms(&m, full, many[i]);
            /* parameters, gradients, and Adam's two moments */
            printf("%8d %12.1f %11.0f%% %16.1f %22.3f\n", many[i], predicted, 100 * full->compute / predicted,
                   4 * one->bytes / 1e6, 4 * one->bytes / 1e6 / many[i]);
        }
    }
    return 0;
}
