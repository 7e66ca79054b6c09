/* The parts of report.html. Each writes a section, or nothing where it does not apply. */
#ifndef COTANGENT_CLI_TRAIN_REPORT_H
#define COTANGENT_CLI_TRAIN_REPORT_H

#include "cli/train/trainer.h"

extern const char report_style[]; /* the style sheet */

bool report_curves(buffer *b, trainer *t);
bool report_confusion(buffer *b, trainer *t);
bool report_mistakes(buffer *b, trainer *t);
bool report_masks(buffer *b, trainer *t);
bool report_scatter(buffer *b, trainer *t);
bool report_samples(buffer *b, trainer *t);
bool report_filters(buffer *b, trainer *t);
bool report_parameters(buffer *b, trainer *t);
bool report_recipe(buffer *b, trainer *t);
bool report_reproduce(buffer *b, trainer *t);

void report_section(buffer *b, const char *title, const char *lead); /* closed by "</section>" */

#endif
