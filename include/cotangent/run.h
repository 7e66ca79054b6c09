/* A training run that survives a power cut: everything that its next step depends on, written to a folder and read back
 * to the same bits.
 *
 *     ct_run run = {.size = sizeof run, .net = net, .optim = opt, .schedule = schedule, .loader = batches};
 *     ct_run_resume(&run, "out");                      // goes on where the last checkpoint ended, if there is one
 *     while (run.step < steps) { ... run.step++; if (run.step % 500 == 0) ct_run_checkpoint(&run, "out", 3); }
 *
 * A resumed run gives bit for bit the losses and weights of one that was never stopped, at any number of threads, on the
 * same level of vector instructions. A checkpoint is a safetensors file that other programs can read: the network's tensors
 * are under "net.", the optimizer's under "optim." and so on.
 *
 * Threads: a run, with all that it names, is one thread's at a time, that of the training loop; the loader in it works on
 * threads of its own all the same. Two runs may write to two folders at once, not to one. */
#ifndef COTANGENT_RUN_H
#define COTANGENT_RUN_H

#include <cotangent/data.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The parts of a run. Only size and net are required; what is NULL is neither stored nor restored. Later versions add at the
 * end. */
typedef struct ct_run {
    size_t size; /* sizeof(ct_run) */
    ct_module *net;
    ct_optim *optim;
    ct_schedule *schedule;
    ct_scaler *scaler;
    ct_ema *ema;
    ct_loader *loader;
    int64_t epoch, step; /* yours: stored and given back */
    ct_state *extra;     /* tensors and texts of your own, stored under "extra." (may be NULL) */
    char isa[16];        /* filled by a load: see ct_run_isa */
    char note[256];      /* filled by ct_run_resume: see ct_run_note */
} ct_run;

/* Writes FOLDER/NAME.safetensors: to a temporary file, synced, renamed, and the folder synced, with a checksum inside.
 * The default generator's seed and position and the level of vector instructions are stored too. Whatever goes wrong, what
 * was there before stays. The folder is made when it is missing (its parent is not). Temporary files that a killed
 * process has left in the folder are removed. */
CT_API bool ct_run_save(const ct_run *run, const char *folder, const char *name);

/* What a file holds of a run, as a state, and back, for programs that write and read files in a way of their own: put adds to the
 * state; open reads a file, which has to be whole and a checkpoint; take is all or nothing, and names path in its errors. */
CT_API bool ct_run_put_state(const ct_run *run, ct_state *state);
CT_API ct_state *ct_run_open(const char *path); /* NULL with an error */
CT_API bool ct_run_take_state(ct_run *run, const ct_state *state, const char *path);

/* The same as FOLDER/step-N.safetensors (N: run->step), keeping the newest `keep` of these (0: all), by N; the one just
 * written always stays. */
CT_API bool ct_run_checkpoint(const ct_run *run, const char *folder, int keep);

/* Reads one file into the parts, and restores the default generator: all of it or, with an error, nothing. A part that the
 * file lacks is an error; parts of the file that run lacks are left alone, so a network alone can be taken out of a
 * checkpoint (ct_load does that too, leaves the generator alone, and converts layouts). run->extra, where there is one, is
 * freed and replaced by a new state of what was stored. A file that is torn, cut, longer than it should be or no checkpoint is refused. */
CT_API bool ct_run_load(ct_run *run, const char *path);

/* Finds the newest step-N.safetensors in the folder that is whole, and loads it; true without any change, run->step
 * included, when there is none or no such folder. One that is torn is passed over, which ct_run_note then tells; when all
 * are, that is an error. */
CT_API bool ct_run_resume(ct_run *run, const char *folder);

/* The level of vector instructions that the loaded file was written under, "" before a load: on another level the next
 * steps give the same losses up to rounding, not the same bits. */
CT_API const char *ct_run_isa(const ct_run *run);
/* What a user should know of the last load or resume, in one line: that a torn checkpoint was passed over, that the level
 * of vector instructions differs. "" when there is nothing to say. */
CT_API const char *ct_run_note(const ct_run *run);

#ifdef __cplusplus
}
#endif
#endif
