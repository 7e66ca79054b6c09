/* What a captured graph is made of: capture.c records it, plan.c finds places for its memory, replay.c runs it, together.c has a device do
 * as one what lies between two things that only the host can do. */
#ifndef COTANGENT_CORE_GRAPH_H
#define COTANGENT_CORE_GRAPH_H

#include "core/capture.h"
#include "core/error.h"
#include "core/map.h"
#include "core/rng.h"

enum { CT__GRAPH_BLOCKS = 4, CT__GRAPH_GENERATORS = 8 };

/* A storage that records read or write, or scratch. */
typedef struct ct_graph_slot {
    ct_storage *kept; /* from before the capture, or left behind by it; NULL: it has a place in the plan */
    ct_device device;
    size_t bytes, offset; /* offset: in the block of its device */
    int first, last;      /* records that use it; first > last: none does */
    bool made;            /* in the capture */
    bool written;         /* by a kernel, or by the host more than once */
    int puts;             /* writes of the host's */
    int data;             /* 1 + number of the graph's data that it lies in, at offset; 0: in none */
    bool constant;        /* it was written when the graph was made */
    bool shared;          /* other slots may lie in its memory: a program's own was wrapped, there or across it */
    bool frozen;          /* a parameter, or a view of one: with CT_CAPTURE_FROZEN no program changes it */
} ct_graph_slot;

typedef enum ct_record_kind { CT__CALL, CT__PUT, CT__FILL, CT__EFFECT } ct_record_kind;

/* A position in a random stream, made anew in each replay. */
typedef struct ct_drawn_at {
    int generator;
    uint64_t draw;     /* from where the generator stands at the beginning */
    int64_t *position; /* where seed, stream and call are among attributes, or the data to put; NULL: in the call: */
    ct_random *random;
} ct_drawn_at;

typedef struct ct_record {
    ct_record_kind kind;
    ct_call call;   /* of CT__CALL: its arrays are below */
    ct_view *views; /* inputs, then outputs */
    int *slots;     /* of each view; -1: it is a number, or not there */
    int n_views;
    int scratch; /* slot; -1: none */
    unsigned char (*numbers)[CT_NUMBER_BYTES];
    int n_numbers;
    /* Of what has a position in a random stream: it is made anew in each replay. -1: it has none */
    int generator;
    uint64_t draw;     /* from where the generator stands at the beginning */
    int64_t *position; /* where seed, stream and call are among the attributes, or the data to put; NULL: in the call */
    ct_drawn_at *
        draws; /* of a fused call: the positions of its steps, in place of the above; generator is that of one of them */
    int n_draws;
    /* of CT__PUT and CT__FILL */
    int slot;
    size_t offset, bytes;
    unsigned char *data; /* to put, or the element */
    bool
        in_data; /* what it puts lies in the graph's data, at place; where its slot lies there too, nothing is left to do */
    size_t place;
    bool (*effect)(void *context);
    void *context;
    bool early;  /* an effect that comes before all else */
    void *block; /* all arrays of this record lie in it */
    size_t block_bytes;
    /* Of the first of several records that the device does as one: how many they are (0: it is not known yet, 1: it is done by itself), and
     * the backend's handle for them. */
    int together;
    void *handle;
    bool once; /* it is done when the graph is made: what it writes is a constant */
    bool gone; /* by a pass */
} ct_record;

/* What the host writes in a replay on a device that does work as one, brought over in one copy before all else: random positions, and what is
 * put into memory that calls change. */
typedef struct ct_graph_data {
    ct_device device;
    size_t bytes;
    unsigned char *here;
    ct_storage *there;
    bool sent;
    ct_drawn_at *moving; /* positions in here, which change from replay to replay */
    int n_moving, moving_room;
} ct_graph_data;

/* What was recorded: copies of the records, and which slots are kept and written. */
typedef struct ct_graph_raw {
    ct_record *records;
    int n_records;
    ct_graph_slot *slots;
    int n_slots;
} ct_graph_raw;

struct ct_graph {
    ct_record *records;
    int n_records, records_room;
    ct_graph_slot *slots;
    int n_slots, slots_room;
    ct_map by_storage;        /* 1 + slot of a storage that is alive */
    ct_graph *next_recording; /* of any thread */
    struct {
        ct_rng *rng; /* NULL: the default one */
        uint64_t begin, drawn;
        ct_random first; /* in a replay */
    } generators[CT__GRAPH_GENERATORS];
    int n_generators;
    struct ct_drawn {
        ct_random at;
        int generator;
    } * draws; /* of the capture */
    int n_draws, draws_room;
    int random_lowerings;                 /* that are going on: what they write may be a position */
    ct_storage *blocks[CT__GRAPH_BLOCKS]; /* one for each device */
    int n_blocks;
    int *changed; /* slots that are kept and written */
    int n_changed;
    bool on_devices; /* some slot is not in host memory */
    ct_graph_data data[CT__GRAPH_BLOCKS];
    int n_data;
    int64_t needed;
    int window;     /* records that are no further from each other may be branches; 0: there are none */
    unsigned flags; /* of ct_capture */
    char note[160]; /* what the last pass did */
    struct ct_guard {
        const int64_t *version;
        int64_t value; /* when the capture ended */
        const char *why;
    } * guards;
    int n_guards, guards_room;
    struct ct_graph_variables *variables; /* numbers of the program's own (graph_variable.c); NULL: none */
    struct ct_graph_names *names;         /* of tensors (graph_look.c); NULL: none */
    ct_graph_raw *raw;                    /* what was recorded, before any pass; NULL: nobody wants to know */
    uint32_t tuning;                      /* that its kernels have their scratch for (ct__tuning) */
    bool (*function)(void *context);      /* that was captured */
    void *context;
    ct_graph *checked; /* this recording is made to be compared with that of another graph, whose variables it has */
    ct_graph *around;  /* that is recorded too, and suspended meanwhile: a checked replay within a captured function */
    bool suspended;    /* its recording */
    ct_error_record refusal; /* why it is not recorded any further; code CT_OK: it is */
    _Atomic bool replaying;
    struct ct_replay_times *times; /* of records, where CT_LOG=replay asks for them (replay_log.c); NULL: nobody has */
};

/* Where the arrays of a call lie, in a block for all of them, with room for so many views, numbers and bytes of attributes. False after an
 * error. */
bool ct__record_arrays(ct_record *record, int n_in, int n_out, int n_numbers, size_t attr_bytes);
int ct__graph_slot(ct_graph *graph, ct_device device, size_t bytes); /* a new one; -1 after an error */
bool ct__graph_grow(ct_graph *graph); /* room for one more record; false after an error */
/* Room for one more in a list of n elements of that size; false after an error. */
bool ct__graph_grow_list(void **list, int *room, int n, size_t size);

const char *ct__graph_fault(const ct_graph *graph); /* why it may not be replayed; NULL: it may */
ct_graph *ct__graph_new(void);                      /* an empty one; NULL after an error */
/* Runs the function once and records it, raw: no pass has seen it and nothing is planned. False after an error. */
bool ct__graph_record(ct_graph *graph, bool (*function)(void *context), void *context);
bool ct__graph_run(ct_graph *graph, ct_record *record);               /* a call, or what the host writes, by itself */
void ct__graph_draw(const ct_graph *graph, const ct_drawn_at *drawn); /* sets a position for this replay */
bool ct__graph_call(ct_graph *graph, ct_record *record);              /* a call, in the order of this thread's stream */
ct_storage *ct__graph_block(const ct_graph *graph, ct_device device); /* NULL: nothing is planned there yet */
/* Where slot s lies: a storage, and bytes from its beginning. */
ct_storage *ct__graph_place(const ct_graph *graph, const ct_graph_slot *s, size_t *offset);
bool ct__graph_put(const ct_graph *graph, ct_record *record); /* what the host writes, to its place */
bool ct__graph_plan(ct_graph *graph); /* places for all slots, and the views of records on them; false after an error */
void ct__graph_bind(ct_graph *graph); /* those views alone, after storages have changed */
/* All records in order. Without effects: what they do the program has done. False after an error. */
bool ct__graph_replay(ct_graph *graph, bool effects);

/* At the beginning of a replay: whether it is timed, for CT_LOG=replay; there is room for it then. */
bool ct__replay_is_timed(ct_graph *graph);
void ct__replay_time_begin(ct_graph *graph);
void ct__replay_time_end(ct_graph *graph, int first, int last); /* those records have been done meanwhile */
/* In a replay that is timed, on a device that tells times: marks before the first of several records that follow each other, behind each of them,
 * and once more behind the last. They go to the stream, or into what is being recorded. False after an error; in other replays there is nothing to do. */
typedef enum ct_replay_mark { CT__MARK_BEFORE, CT__MARK_BEHIND, CT__MARK_AGAIN, CT__REPLAY_MARKS } ct_replay_mark;
bool ct__replay_mark(ct_graph *graph, int record, ct_replay_mark place);
bool ct__replay_is_marked(const ct_graph *graph, ct_device device);
bool ct__replay_times_read(ct_graph *graph); /* at the end of such a replay; waits. False after an error */
/* At the end of a graph: a line for each record, with the least time of all replays. */
void ct__replay_times_log(ct_graph *graph);

bool ct__variables_send(ct_graph *graph); /* those that were set; false after an error */
void ct__variables_free(struct ct_graph_variables *variables);

bool ct__graph_keep_raw(ct_graph *graph); /* what was recorded, before any pass; false after an error */
void ct__graph_raw_free(ct_graph_raw *raw);
void ct__graph_names_free(struct ct_graph_names *names);
/* Brings what slots hold to the tensors that have names, where a checked replay has left them other memory. False after an error. */
bool ct__graph_names_follow(ct_graph *graph);
/* The function, recorded anew, and a replay beside it. False after an error: they differ, say. */
bool ct__graph_check_replay(ct_graph *graph);

/* ---- Branches ---- */

/* Which of the records before it a record comes after: bit i is the one i + 1 places before it. */
typedef struct ct_branch {
    uint64_t after; /* at once */
    uint64_t all;   /* by way of others too */
} ct_branch;

/* Of n records from `from` on, among each other. planned: by their places in memory, else by slots. NULL after an error. */
ct_branch *ct__branches_find(const ct_graph *graph, int from, int n, int window, bool planned);
void ct__branches_free(ct_branch *branches, int n);
/* Finds out how far apart records may be branches, and makes the lives of what they use longer: the plan comes next. False after an error. */
bool ct__branches_plan(ct_graph *graph);

/* ---- Work as one ---- */

/* The data of all devices that do work as one; what only the host writes, once in a replay, gets its place in them. False after an error. */
bool ct__graph_data_plan(ct_graph *graph);
bool ct__graph_data_send(ct_graph *graph); /* before a replay; false after an error */
void ct__graph_data_free(ct_graph *graph);
/* Whether a device does work as one. */
bool ct__records_work(ct_device device);
/* Does record *i, of a device that does work as one, and those that go with it; *i becomes the last of them. False after an error. */
bool ct__graph_run_together(ct_graph *graph, int *i);
ct_device ct__record_device(const ct_graph *graph, const ct_record *record); /* an effect's is the CPU */
void ct__graph_forget(ct_graph *graph);                                      /* the backend's handles */

#endif
