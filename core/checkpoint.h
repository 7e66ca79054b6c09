/* Checkpointed regions: inside one, nodes save nothing; when backward asks, the region runs again and fills in. */
#ifndef COTANGENT_CORE_CHECKPOINT_H
#define COTANGENT_CORE_CHECKPOINT_H

#include "core/node.h"

/* The region that a node being recorded belongs to (retained for it), or NULL. */
ct_region *ct__region_enter_node(ct_node *node);
/* One saved tensor goes by: counted when the region first runs, stored when it runs again. */
bool ct__region_save(ct_region *region, ct_tensor *x);
/* The recomputed tensor for a slot of node; borrowed; NULL after an error. */
ct_tensor *ct__region_load(ct_node *node, int slot);
void ct__region_release(ct_region *region);
/* An op has changed an input that it declares as changed, which was at this version before. It will not do so again when the
 * region repeats, so an argument of the region may be what was changed. */
void ct__region_mutated(const ct_storage *storage, uint32_t before);
/* Random positions drawn inside a region are noted, and drawn again when it repeats. */
bool ct__region_random(ct_random *position);

#endif
