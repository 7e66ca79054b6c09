/* Attributes as they come from a caller, who may have written them by hand. */
#ifndef COTANGENT_CORE_ATTRS_H
#define COTANGENT_CORE_ATTRS_H

#include <cotangent/op.h>

/* What the types promise, before any infer, lowering or kernel reads them: lists no longer than they can be, dtypes, enums and
 * devices that exist, texts that end. */
bool ct__attrs_check(const ct_op *op, const void *attrs);
/* The same values, whatever lies in unused room of lists and texts. Either may be NULL, which is no other. */
bool ct__attrs_same(const ct_op *op, const void *a, const void *b);

#endif
