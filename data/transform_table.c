/* The transforms by name, for recipes: one entry each, with its settings, their defaults, and the call that builds
 * it. */
#include "data/data.h"

#include <math.h>

#define COUNT(list) (int)(sizeof(list) / sizeof *(list))
#define NEEDED      NAN

static int64_t whole(double value) { return (int64_t)value; } /* ct_transform_build has made sure that it is */

static ct_transform *build_float(const double *v) {
    (void)v;
    return ct_transform_float();
}
static ct_transform *build_normalize(const double *v) {
    const bool color = v[3] != 0 || v[5] != 0;
    const double mean[3] = {v[0], v[3] != 0 ? v[2] : v[0], v[5] != 0 ? v[4] : v[0]};
    const double std[3] = {v[1], v[3] != 0 ? v[3] : v[1], v[5] != 0 ? v[5] : v[1]};
    return ct_transform_normalize(mean, std, color ? 3 : 1);
}
static ct_transform *build_pad(const double *v) { return ct_transform_pad(whole(v[0]), v[1]); }
static int64_t or_square(const double *v) { return whole(v[1] > 0 ? v[1] : v[0]); }
static ct_transform *build_center(const double *v) { return ct_transform_center_crop(whole(v[0]), or_square(v)); }
static ct_transform *build_crop(const double *v) {
    return ct_transform_random_crop(whole(v[0]), or_square(v), whole(v[2]));
}
static ct_transform *build_resize(const double *v) { return ct_transform_resize(whole(v[0]), or_square(v)); }
static ct_transform *build_resized(const double *v) {
    return ct_transform_random_resized_crop(whole(v[0]), or_square(v), v[2], v[3]);
}
static ct_transform *build_flip(const double *v) { return ct_transform_flip(v[0]); }
static ct_transform *build_flip_vertical(const double *v) { return ct_transform_flip_vertical(v[0]); }
static ct_transform *build_rotate(const double *v) { return ct_transform_random_rotate(v[0], v[1] != 0); }
static ct_transform *build_jitter(const double *v) { return ct_transform_color_jitter(v[0], v[1], v[2], v[3]); }
static ct_transform *build_cutout(const double *v) { return ct_transform_cutout(whole(v[0]), v[1]); }
static ct_transform *build_erase(const double *v) { return ct_transform_erase(v[0], v[1], v[2], v[3]); }
static ct_transform *build_gray(const double *v) { return ct_transform_gray(whole(v[0])); }
static ct_transform *build_mixup(const double *v) { return ct_transform_mixup(v[0], v[1]); }
static ct_transform *build_cutmix(const double *v) { return ct_transform_cutmix(v[0], v[1]); }

/* The width of 0 stands for a square. */
#define SIZE                                                              \
    {"height", NEEDED, "rows of the result", CT_SETTING_WHOLE}, {         \
        "width", 0, "columns of the result; 0: as many", CT_SETTING_WHOLE \
    }

static const ct_setting normalize_settings[] = {
    {"mean", 0.5, "subtracted from every channel, or from red", CT_SETTING_NUMBER},
    {"std", 0.5, "then divided by", CT_SETTING_NUMBER},
    {"mean_green", 0, "the same for green", CT_SETTING_NUMBER},
    {"std_green", 0, "the same for green; 0: as the first", CT_SETTING_NUMBER},
    {"mean_blue", 0, "the same for blue", CT_SETTING_NUMBER},
    {"std_blue", 0, "the same for blue; 0: as the first", CT_SETTING_NUMBER},
};
static const ct_setting pad_settings[] = {{"pixels", NEEDED, "on each side", CT_SETTING_WHOLE},
                                          {"value", 0, "what with, 0 to 1", CT_SETTING_NUMBER}};
static const ct_setting size_settings[] = {SIZE};
static const ct_setting crop_settings[] = {SIZE, {"pad", 0, "zeros on each side before", CT_SETTING_WHOLE}};
static const ct_setting resized_settings[] = {SIZE,
                                              {"min_area", 0.08, "least fraction of the area", CT_SETTING_NUMBER},
                                              {"max_area", 1, "largest fraction of the area", CT_SETTING_NUMBER}};
static const ct_setting chance_settings[] = {{"p", 0.5, "how likely", CT_SETTING_NUMBER}};
static const ct_setting rotate_settings[] = {{"degrees", NEEDED, "at most, either way", CT_SETTING_NUMBER},
                                             {"nearest", 0, "1: no mixing of neighbors", CT_SETTING_FLAG}};
static const ct_setting jitter_settings[] = {
    {"brightness", 0, "factor 1 - x to 1 + x", CT_SETTING_NUMBER},
    {"contrast", 0, "the same", CT_SETTING_NUMBER},
    {"saturation", 0, "the same", CT_SETTING_NUMBER},
    {"hue", 0, "turned by up to this fraction of the circle", CT_SETTING_NUMBER}};
static const ct_setting cutout_settings[] = {{"size", NEEDED, "of the square", CT_SETTING_WHOLE},
                                             {"p", 1, "how likely", CT_SETTING_NUMBER}};
static const ct_setting erase_settings[] = {{"p", 0.5, "how likely", CT_SETTING_NUMBER},
                                            {"min_area", 0.02, "least fraction of the area", CT_SETTING_NUMBER},
                                            {"max_area", 0.33, "largest fraction of the area", CT_SETTING_NUMBER},
                                            {"value", 0, "what with", CT_SETTING_NUMBER}};
static const ct_setting gray_settings[] = {{"channels", 1, "1, or 3 of the same", CT_SETTING_WHOLE}};
static const ct_setting mixup_settings[] = {
    {"alpha", 0.2, "of the beta distribution of the weights", CT_SETTING_NUMBER},
    {"p", 1, "how likely, per batch", CT_SETTING_NUMBER}};
static const ct_setting cutmix_settings[] = {{"alpha", 1, "of the beta distribution of the areas", CT_SETTING_NUMBER},
                                             {"p", 1, "how likely, per batch", CT_SETTING_NUMBER}};

#define ENTRY(name, doc, settings, build) \
    { name, doc, settings, COUNT(settings), build }
static const ct_transform_info table[] = {
    {"float", "numbers in 0 .. 1 from pixels", NULL, 0, build_float},
    ENTRY("normalize", "subtracts the mean and divides by the deviation", normalize_settings, build_normalize),
    ENTRY("pad", "puts a frame round the image", pad_settings, build_pad),
    ENTRY("center_crop", "the middle of the image", size_settings, build_center),
    ENTRY("random_crop", "a random part of the padded image", crop_settings, build_crop),
    ENTRY("resize", "the whole image in another size", size_settings, build_resize),
    ENTRY("random_resized_crop", "a random part of random size, resized", resized_settings, build_resized),
    ENTRY("flip", "left to right, at random", chance_settings, build_flip),
    ENTRY("flip_vertical", "upside down, at random", chance_settings, build_flip_vertical),
    ENTRY("rotate", "by a random angle", rotate_settings, build_rotate),
    ENTRY("color_jitter", "random brightness, contrast, saturation and hue", jitter_settings, build_jitter),
    ENTRY("cutout", "a square of zeros at a random place", cutout_settings, build_cutout),
    ENTRY("erase", "a rectangle at a random place, filled", erase_settings, build_erase),
    ENTRY("gray", "without colors", gray_settings, build_gray),
    ENTRY("mixup", "pairs of items mixed, with their labels", mixup_settings, build_mixup),
    ENTRY("cutmix", "a rectangle of another item put in, with its part of the label", cutmix_settings, build_cutmix),
};

const ct_transform_info *ct_transform_at(int i) { return i >= 0 && i < COUNT(table) ? &table[i] : NULL; }

const ct_transform_info *ct_transform_find(const char *name) {
    for (int i = 0; name && i < COUNT(table); i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

ct_transform *ct_transform_build(const ct_transform_info *info, const double *values) {
    if (!info) {
        ct__null("transform_build", "info");
        return NULL;
    }
    double filled[16];
    for (int i = 0; i < info->count && i < 16; i++) {
        filled[i] = values ? values[i] : info->settings[i].value;
        if (isnan(filled[i])) {
            ct_fail(CT_ERR_VALUE, "transform_build", "%s: %s has to be given", info->name, info->settings[i].name);
            return NULL;
        }
        const char *wanted = ct__setting_wants(&info->settings[i], filled[i]);
        if (wanted) {
            ct_fail(CT_ERR_VALUE, "transform_build", "%s: %s is %.10g; it has to be %s", info->name,
                    info->settings[i].name, filled[i], wanted);
            return NULL;
        }
    }
    return info->build(filled);
}
