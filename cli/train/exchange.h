/* What processes that train together tell each other beside gradients; where there is one process, it costs nothing. */
#ifndef COTANGENT_CLI_TRAIN_EXCHANGE_H
#define COTANGENT_CLI_TRAIN_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

/* How often ranks tell each other of losses, signals and checkpoints that are due: every so many steps, since a
 * clock of its own would lead each rank to another step. */
enum { RANKS_MEET = 8 };
/* Flags of any rank. */
enum { RANKS_STOP = 1, RANKS_SAVE = 2 };
bool ranks_agree(unsigned *flags);
/* n numbers of every rank, rank by rank; for the caller to free. NULL after an error. */
double *ranks_gather(const double *values, int64_t n);
bool ranks_take_first(double *values, int64_t n); /* those of rank 0 */

#endif
