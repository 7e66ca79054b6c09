/* Work along one axis: the lines of up to four views that differ only in the length of that axis (or lack it), handed
 * out in bundles of neighboring lines, in fixed chunks. For scans, sorts and selections. */
#ifndef COTANGENT_OPS_SCAN_LINES_H
#define COTANGENT_OPS_SCAN_LINES_H

#include <cotangent/backend.h>

enum { CT_LINES_VIEWS = 4 };

/* A bundle of `width` lines: element i of line j of view k is at[k] + i * step[k] + j * line[k], steps in elements.
 * Views that are not there have at[k] == NULL. */
typedef struct ct_bundle {
    char *at[CT_LINES_VIEWS];
    int64_t step[CT_LINES_VIEWS], line[CT_LINES_VIEWS];
    int64_t width, first; /* first: the number of the bundle's first line */
    int worker;
} ct_bundle;

typedef void (*ct_bundle_fn)(void *ctx, const ct_bundle *bundle);

/* Calls fn for all lines of the views along axis of the first, at most `widest` at a time, and not many fewer than
 * `narrowest` where there are that many. `cost` elements are a line's work, for the size of chunks. Neighbors are the lines
 * along dimension `inner`, or with -1 those that lie closest in the first view, which may all be one and the same there. */
void ct__lines(const ct_view *const *views, int n, int axis, int inner, int64_t narrowest, int64_t widest, int64_t cost,
               ct_bundle_fn fn, void *ctx);

#endif
