/* Event files that TensorBoard reads: scalars, pictures and texts by step. */
#ifndef COTANGENT_CLI_TRAIN_TENSORBOARD_H
#define COTANGENT_CLI_TRAIN_TENSORBOARD_H

#include <cotangent.h>

typedef struct board board;

/* A new file in the folder. What earlier files of that folder say of steps from first_step on is to be forgotten (a run
 * that is resumed at that step). NULL with an error. */
board *board_open(const char *folder, int64_t first_step);
void board_close(board *b);

/* Each is a whole record, written and flushed. False with an error when the disk is full. */
bool board_scalar(board *b, int64_t step, const char *tag, double value);
bool board_image(board *b, int64_t step, const char *tag, int width, int height, const void *png, size_t bytes);
bool board_text(board *b, int64_t step, const char *tag, const char *text);

uint32_t board_crc32c(const void *bytes, size_t n);

#endif
