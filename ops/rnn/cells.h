/* What the files of this folder agree on: how many gates and saved values a cell has. */
#ifndef COTANGENT_OPS_RNN_CELLS_H
#define COTANGENT_OPS_RNN_CELLS_H

#include <cotangent.h>

static inline int64_t ct__cell_gates(int cell) { return cell == CT_CELL_LSTM ? 4 : cell == CT_CELL_GRU ? 3 : 1; }
static inline int64_t ct__cell_states(int cell) { return cell == CT_CELL_LSTM ? 5 : cell == CT_CELL_GRU ? 4 : 0; }

#endif
