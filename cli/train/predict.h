/* What a network says of new data: classes of images and of their pixels, rows of a table. Each prints on standard output. */
#ifndef COTANGENT_CLI_TRAIN_PREDICT_H
#define COTANGENT_CLI_TRAIN_PREDICT_H

#include "cli/train/learner.h"

typedef struct predict_options {
    int64_t top;        /* classes of an image; 0: as many as usual */
    int64_t max_pixels; /* images of more are refused; 0: the library's own limit */
    ct_device device;   /* where the network computes; zero: on the CPU */
    const char *out;    /* the folder of masks; NULL: the one that the command runs in */
    bool json;
    bool first; /* none was printed before: a table then begins with a line of names */
} predict_options;

/* One file. False with an error. */
typedef bool (*predict_fn)(learner *l, const char *path, const predict_options *options);
bool predict_classes(learner *l, const char *path, const predict_options *options);
bool predict_mask(learner *l, const char *path, const predict_options *options);
bool predict_table(learner *l, const char *path, const predict_options *options);

/* Whether the files that predict_mask would write of these images are different ones, and none of the images themselves; false
 * with an error. */
bool predict_masks_differ(const char *const *images, int n, const predict_options *options);

#endif
