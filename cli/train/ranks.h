/* Training by several processes: each rank its share of every batch; rank 0 alone prints, reports and writes. */
#ifndef COTANGENT_CLI_TRAIN_RANKS_H
#define COTANGENT_CLI_TRAIN_RANKS_H

#include "cli/train/exchange.h"
#include "cli/train/trainer.h"

/* Whether all ranks have come so far without an error, of which this one has come or not. What several have in common is told by the
 * first of them alone: the others keep no error. */
bool ranks_ready(const trainer *t, bool mine);
/* Errors that name the ranks which have another recipe, or other data, another network or step than rank 0. */
bool ranks_compare_recipe(const trainer *t);
bool ranks_compare_progress(const trainer *t);
/* Makes the network one of all ranks, where there are several or the recipe asks for shards; else does nothing. */
bool ranks_begin(trainer *t);
void ranks_end(trainer *t);
const char *ranks_text(const trainer *t); /* "; layers are cut among 2", or "" */
bool ranks_share_folder(trainer *t);      /* rank 0 has made it: the others learn its name */
/* One step; `first` is the first part of the batch that this rank has. */
bool ranks_step(trainer *t, const ct_batch *first, double lr);

bool ranks_note_waiting(trainer *t, double seconds); /* how long ranks have waited in an epoch of so many seconds */

#endif
