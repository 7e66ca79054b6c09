/* The module that carries data by MPI: libcotangent_mpi_openmpi.so and libcotangent_mpi_mpich.so are this source
 * with one or the other's mpi.h. Everything that may take long begins without blocking; requests are polled by
 * dist/. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "dist/mpi/pair.h"
#include "dist/mpi/reduce.h"

static MPI_Comm lanes[CT__MOST_GROUPS][CT__LANES]; /* by number of the group */
static bool used[CT__MOST_GROUPS];
static int begun[CT__MOST_GROUPS]; /* sums of pairs so far, the same on both */
static bool ours;                  /* MPI was initialized here, and is finalized here */

const char *ct__mpi_problem(int code) {
    static char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS) return NULL;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "MPI's error %d", code);
    return text;
}

/* ---- The job and its groups ---- */

static const char *open_lanes(int number, MPI_Comm from) {
    const char *problem = NULL;
    for (int lane = 0; lane < CT__LANES && !problem; lane++) {
        problem = ct__mpi_problem(MPI_Comm_dup(from, &lanes[number][lane]));
        if (!problem) problem = ct__mpi_problem(MPI_Comm_set_errhandler(lanes[number][lane], MPI_ERRORS_RETURN));
    }
    used[number] = !problem;
    begun[number] = 0;
    return problem;
}

static const char *local_place(int *rank, int *ranks) {
    MPI_Comm machine;
    const char *problem =
        ct__mpi_problem(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
    if (problem) return problem;
    MPI_Comm_rank(machine, rank);
    MPI_Comm_size(machine, ranks);
    return ct__mpi_problem(MPI_Comm_free(&machine));
}

static void library_name(char *name, size_t room) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "MPI");
    text[strcspn(text, ",\n")] = 0; /* "Open MPI v4.1.4, package: ..." */
    for (char *c = text; *c; c++)
        if (*c == '\t') *c = ' ';
    snprintf(name, room, "%.*s", (int)room - 1, text);
}

static bool running(void) {
    int flag = 0;
    return MPI_Initialized(&flag) == MPI_SUCCESS && flag;
}

static const char *open(int *rank, int *ranks, int *local_rank, int *local_ranks, bool *any_thread, char *name,
                        size_t room) {
    int level = MPI_THREAD_SINGLE;
    const char *problem = NULL;
    if (!running()) {
        problem = ct__mpi_problem(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
        ours = !problem;
    }
    if (!problem) problem = ct__mpi_problem(MPI_Query_thread(&level));
    *any_thread = level >= MPI_THREAD_SERIALIZED;
    if (!problem) problem = ct__mpi_problem(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (!problem) problem = open_lanes(0, MPI_COMM_WORLD);
    if (!problem) problem = ct__mpi_problem(MPI_Comm_rank(MPI_COMM_WORLD, rank));
    if (!problem) problem = ct__mpi_problem(MPI_Comm_size(MPI_COMM_WORLD, ranks));
    if (!problem) problem = local_place(local_rank, local_ranks);
    if (!problem) problem = ct__reduce_open();
    if (!problem) library_name(name, room);
    return problem;
}

static const char *split(int group, int color, int key, int *made, int *rank, int *ranks) {
    MPI_Comm comm = MPI_COMM_NULL;
    const char *problem =
        ct__mpi_problem(MPI_Comm_split(lanes[group][CT__CALLS], color < 0 ? MPI_UNDEFINED : color, key, &comm));
    *made = -1, *rank = 0, *ranks = 1;
    if (problem || comm == MPI_COMM_NULL) return problem;
    int number = 0;
    while (number < CT__MOST_GROUPS && used[number]) number++;
    if (number == CT__MOST_GROUPS) problem = "there are too many groups at once";
    if (!problem) problem = open_lanes(number, comm);
    if (!problem) problem = ct__mpi_problem(MPI_Comm_rank(comm, rank));
    if (!problem) problem = ct__mpi_problem(MPI_Comm_size(comm, ranks));
    MPI_Comm_free(&comm);
    *made = number;
    return problem;
}

static void release(int group) {
    for (int lane = 0; lane < CT__LANES; lane++) MPI_Comm_free(&lanes[group][lane]);
    used[group] = false;
}

static const char *close(void) {
    int over = 0;
    for (int i = 0; i < CT__MOST_GROUPS; i++)
        if (used[i]) release(i);
    ct__pair_close();
    return !ours || (MPI_Finalized(&over) == MPI_SUCCESS && over) ? NULL : ct__mpi_problem(MPI_Finalize());
}

/* ---- Requests ---- */

void ct__request_put(ct__request *request, MPI_Request mpi) {
    request->handle = 0;
    memcpy(&request->handle, &mpi, sizeof mpi);
}

static const char *test(ct__request *request, bool *done) {
    MPI_Request mpi;
    int flag = 0;
    if (ct__pair_is(request)) return ct__pair_test(request, done);
    memcpy(&mpi, &request->handle, sizeof mpi);
    const char *problem = ct__mpi_problem(MPI_Test(&mpi, &flag, MPI_STATUS_IGNORE));
    ct__request_put(request, mpi); /* what is over has become MPI's null request, of which test says that it is over */
    *done = flag != 0;
    return problem;
}

static const char *collective(int group, ct__lane lane, ct__transfer *t, ct__request *request) {
    const MPI_Comm comm = lanes[group][lane];
    if (ct__pair_takes(t, comm)) { /* two tags each, of which MPI has 32767 at least */
        begun[group] = (begun[group] + 1) % 16000;
        return ct__pair_start(t, comm, 2 * begun[group], request);
    }
    const int n = (int)t->count;
    MPI_Datatype type = MPI_BYTE;
    MPI_Op op = MPI_SUM;
    MPI_Request mpi = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS, rank = 0;
    const void *in = t->in == t->out ? MPI_IN_PLACE : t->in;
    const bool reduces = t->kind == CT__ALL_REDUCE || t->kind == CT__REDUCE_SCATTER;
    const char *problem =
        reduces ? ct__reduce_find(t->dtype, t->reduction, &type, &op) : ct__type_find(t->dtype, &type);
    if (problem) return problem;
    switch (t->kind) {
    case CT__ALL_REDUCE: code = MPI_Iallreduce(in, t->out, n, type, op, comm, &mpi); break;
    case CT__REDUCE_SCATTER: code = MPI_Ireduce_scatter_block(t->in, t->out, n, type, op, comm, &mpi); break;
    case CT__ALL_GATHER: code = MPI_Iallgather(t->in, n, type, t->out, n, type, comm, &mpi); break;
    case CT__ALL_TO_ALL: code = MPI_Ialltoall(t->in, n, type, t->out, n, type, comm, &mpi); break;
    case CT__BROADCAST:
        MPI_Comm_rank(comm, &rank);
        if (rank == t->root && t->in != t->out) {
            int size = 0;
            MPI_Type_size(type, &size);
            memcpy(t->out, t->in, (size_t)size * (size_t)n);
        }
        code = MPI_Ibcast(t->out, n, type, t->root, comm, &mpi);
        break;
    default: return "this is not a collective";
    }
    ct__request_put(request, mpi);
    return ct__mpi_problem(code);
}

/* A long message goes as larger units, since MPI counts in int. */
static const char *message_type(size_t bytes, int *count, MPI_Datatype *type) {
    const size_t unit = bytes >> 30 == 0 ? 1 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2;
    *type = unit == 1 ? MPI_BYTE : unit == 8 ? MPI_UINT64_T : unit == 4 ? MPI_UINT32_T : MPI_UINT16_T;
    *count = (int)(bytes / unit);
    return bytes % unit || bytes / unit > 0x7fffffff ? "a message is longer than MPI counts" : NULL;
}

static const char *send(int group, ct__lane lane, const void *data, size_t bytes, int to, int tag,
                        ct__request *request) {
    MPI_Request mpi = MPI_REQUEST_NULL;
    MPI_Datatype type;
    int count;
    const char *problem = message_type(bytes, &count, &type);
    if (!problem) problem = ct__mpi_problem(MPI_Isend(data, count, type, to, tag, lanes[group][lane], &mpi));
    ct__request_put(request, mpi);
    return problem;
}

static const char *receive(int group, ct__lane lane, void *data, size_t bytes, int from, int tag,
                           ct__request *request) {
    MPI_Request mpi = MPI_REQUEST_NULL;
    MPI_Datatype type;
    int count;
    const char *problem = message_type(bytes, &count, &type);
    if (!problem) problem = ct__mpi_problem(MPI_Irecv(data, count, type, from, tag, lanes[group][lane], &mpi));
    ct__request_put(request, mpi);
    return problem;
}

static const char *probe(int group, ct__lane lane, int tag, int *from) {
    MPI_Status status;
    int flag = 0;
    const char *problem = ct__mpi_problem(MPI_Iprobe(MPI_ANY_SOURCE, tag, lanes[group][lane], &flag, &status));
    *from = !problem && flag ? status.MPI_SOURCE : -1;
    return problem;
}

__attribute__((visibility("default"))) const ct__transport *ct_dist_transport(void);
const ct__transport *ct_dist_transport(void) {
    static const ct__transport transport = {.size = sizeof transport,
                                            .version = CT__TRANSPORT_VERSION,
                                            .running = running,
                                            .open = open,
                                            .split = split,
                                            .release = release,
                                            .collective = collective,
                                            .send = send,
                                            .receive = receive,
                                            .probe = probe,
                                            .test = test,
                                            .close = close};
    return &transport;
}
