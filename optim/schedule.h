/* What the files of schedules share. */
#ifndef COTANGENT_OPTIM_SCHEDULE_H
#define COTANGENT_OPTIM_SCHEDULE_H

#include "optim/optim.h"

/* A kind: lr / base, and where it has one the momentum, as functions of t. */
typedef struct schedule_kind {
    const char *name;
    double (*factor)(const ct_schedule *schedule, int64_t t);
    bool (*momentum)(const ct_schedule *schedule, int64_t t, double *momentum); /* NULL, or false: left alone */
    bool needs_metric;
} schedule_kind;

struct ct_schedule {
    const schedule_kind *kind;
    ct_optim *optim;
    double base; /* the learning rate that factors are of */
    int64_t t;
    double p[10]; /* its parameters, as its kind names them */
    ct_dims milestones;
    double (*fn)(void *context, int64_t t);
    void *context;
    double current, best; /* of plateau: its factor, and the best metric */
    int64_t bad, cooling;
    ct_schedule **parts; /* of chain and sequence; owned */
    int64_t *starts;     /* of sequence: where each part begins */
    int count, depth;    /* depth: of the schedules within one another */
};

/* A schedule of this kind with these parameters, t = 0 and not yet applied; NULL after an error. */
ct_schedule *schedule_new(const schedule_kind *kind, ct_optim *optim, const double *p, int n);
/* Sets the optimizer to t and returns the schedule; on failure frees it and returns NULL. */
ct_schedule *schedule_begin(ct_schedule *schedule);
void schedule_observe(ct_schedule *plateau, double metric);
double schedule_base(const ct_optim *optim);

#endif
