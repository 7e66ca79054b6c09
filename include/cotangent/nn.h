/* Networks: modules with named parameters and buffers, the layers, initializers and ready models. Written on cotangent.h
 * alone: a module of your own is made the same way as those here (see ct_module_class).
 *
 *     ct_module *net = ct_nn_sequential(ct_nn_conv2d(1, 32, 3, .pad = 1), ct_nn_relu(), ct_nn_max_pool2d(2),
 *                                       ct_nn_flatten(), ct_nn_linear(32 * 14 * 14, 10));
 *     ct_tensor *y = ct_forward(net, x);
 *
 * A constructor owns the modules that it is given even when it fails: it then frees them and returns NULL. A NULL child
 * makes its parent NULL, so a whole network is built in one expression and checked once. Sizes are below 2^31, and modules are at
 * most 256 within one another.
 *
 * Threads: ct_forward of one network may run on several threads at once where it changes nothing: in evaluation (ct_eval), for
 * then dropout draws nothing and running statistics are read alone; caches (ct_nn_cache) are the caller's, one for each. Training, and
 * whatever changes a network (its mode, parameters, children, device), is for one thread alone. A class of your own keeps what its
 * forward remembers out of its module, or says that it is not for threads. */
#ifndef COTANGENT_NN_H
#define COTANGENT_NN_H

#include <cotangent.h>
#include <cotangent/op.h>
#include <cotangent/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Modules ------------------------------------------------------------------------------------- */

typedef struct ct_module ct_module;

/* What a kind of module does. Fill one (constant, it outlives its modules) for a module of your own. Later versions add at its
 * end: code that was compiled with this one goes on working. */
typedef struct ct_module_class {
    size_t size;      /* sizeof(ct_module_class) */
    const char *name; /* "conv2d": for printing and errors */
    size_t state;     /* bytes of its own plain data, zeroed at first: ct_module_data */
    /* One tensor to one. It may make what it likes: the caller has opened a scope and passes the result on. */
    ct_tensor *(*forward)(ct_module *self, ct_tensor *x);
    /* n tensors to m, for modules that take or give more. A class has one of the two. */
    bool (*forward_n)(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m);
    /* The options as they were given, for printing ("32, 64, kernel=3"). May be NULL. */
    void (*describe)(const ct_module *self, char *text, size_t capacity);
    /* Makes a copy's plain data its own, where bytes alone are not enough. May be NULL. */
    bool (*copy)(const ct_module *from, ct_module *to);
    /* Frees what the plain data owns; not parameters, buffers or children. May be NULL. With it and without copy a module
     * cannot be copied. */
    void (*release)(ct_module *self);
    /* forward, then an activation, in one pass: how ct_nn_sequential spares the activation after it. May be NULL. */
    ct_tensor *(*forward_then)(ct_module *self, ct_tensor *x, ct_activation activation);
    ct_activation activation; /* of an activation without options: which one it is */
    /* Names that other libraries have for what is below: when weights are taken, a name that is not the module's own becomes
     * what the first of these that fits makes of it (seen from this module). The list ends with an empty one. May be NULL. */
    const ct_rename *aliases;
    /* Whether its own parameters of three axes and more lie as [kernel..., in, out], not as [out, in, kernel...]. NULL: they
     * have no such layout. */
    bool (*channels_last)(const ct_module *self);
} ct_module_class;

/* A module is counted: it is made with one reference, ct_module_keep adds one and ct_module_free gives one back. */
CT_API ct_module *ct_module_new(const ct_module_class *type);
CT_API ct_module *ct_module_keep(ct_module *module);
CT_API void ct_module_free(ct_module *module);
CT_API void *ct_module_data(const ct_module *module); /* its plain data, `state` bytes */
CT_API const ct_module_class *ct_module_type(const ct_module *module);

/* Adding to a module, in the order in which names are listed. A parameter is kept and requires grad from now on; a
 * buffer is kept and saved with the parameters, but not learned (running statistics). NULL, a name that is taken or has
 * a dot, and a NULL tensor are errors. ct_module_add owns the child. */
CT_API bool ct_module_add_param(ct_module *module, const char *name, ct_tensor *x);
CT_API bool ct_module_add_buffer(ct_module *module, const char *name, ct_tensor *x);
CT_API bool ct_module_add(ct_module *module, const char *name, ct_module *child);
/* The i-th own parameter becomes x, whatever that is, leaf or not: for what computes with tensors that were made elsewhere (gathered from other
 * processes, say) and puts the old ones back. It is kept. Optimizers that were made before refuse to step while it is another one. */
CT_API bool ct_module_set_param(ct_module *module, int i, ct_tensor *x);

/* Processes that all have a module's parameters may divide the learning of them (ct_dist_divide, stage 1). An optimizer
 * that is made for the module afterwards learns, and has state for, one of `parts` runs of each parameter's elements,
 * flat; gather is called after each of its steps with the whole parameters that it has changed, and brings the runs
 * that the others have learned. */
typedef struct ct_division {
    int part, parts;
    bool (*gather)(void *context, ct_tensor *const *xs, int n);
    void *context;
} ct_division;
/* Of a module's own parameters, not of those below it; NULL, or one part: they are not divided. It is copied; copies of
 * a module do not have it. Optimizers that were made before refuse to step. */
CT_API bool ct_module_set_division(ct_module *module, const ct_division *division);
CT_API const ct_division *ct_module_division(const ct_module *module); /* NULL: not divided */
/* The run of this part, of n elements: all parts have as many, rounded up, but the last ones, which may have none. */
CT_API void ct_division_range(const ct_division *division, int64_t n, int64_t *from, int64_t *count);

/* The child of that name becomes another one, which is owned; the old one is freed. */
CT_API bool ct_module_replace(ct_module *module, const char *name, ct_module *child);

/* The i-th own parameter, buffer or child, in the order of adding; NULL past the end. Made for forward functions. */
CT_API ct_tensor *ct_module_param(const ct_module *module, int i);
CT_API ct_tensor *ct_module_buffer(const ct_module *module, int i);
CT_API ct_module *ct_module_child(const ct_module *module, int i);
CT_API int ct_module_param_count(const ct_module *module);
CT_API int ct_module_buffer_count(const ct_module *module);
CT_API int ct_module_child_count(const ct_module *module);
CT_API const char *ct_module_param_name(const ct_module *module, int i);
CT_API const char *ct_module_buffer_name(const ct_module *module, int i);
CT_API const char *ct_module_child_name(const ct_module *module, int i);
/* By path from here ("layers.0.weight"; "layers.0"): NULL when there is none, no error. */
CT_API ct_tensor *ct_module_find(const ct_module *module, const char *path);
CT_API ct_module *ct_module_find_child(const ct_module *module, const char *path);

/* The parameter at path becomes the very tensor that is at other (an output layer that shares the embedding's weight): both
 * learn as one from then on, are counted and saved once, and stay one through copies, moves and freezing from above. */
CT_API bool ct_module_tie(ct_module *module, const char *path, const char *other);

/* Runs the module: the results belong to the current scope, everything else is released. Without recording (ct_no_grad) a deep
 * network so holds the activations of about two layers. An error that an op raises inside says where: "...; in layers.3
 * (conv2d)". A class's forward runs its children with these as well. With ct_forward a module that takes more tensors gets
 * the first one, one that gives more gives the first one. ct_forward_n: n and m as the module's description says. */
CT_API ct_tensor *ct_forward(ct_module *module, ct_tensor *x);
CT_API bool ct_forward_n(ct_module *module, ct_tensor *const *in, int n, ct_tensor **out, int m);

/* Every parameter and buffer below here, each tensor once (one that is shared goes by its first name). */
typedef struct ct_parameter {
    const char *name; /* whole path */
    ct_module *owner;
    int index;   /* among the owner's parameters, or buffers */
    bool buffer; /* not learned */
    bool frozen; /* not learned for now, when the list was made; ct_requires_grad of the tensor says so at any time */
} ct_parameter;
typedef struct ct_parameters ct_parameters;
CT_API ct_parameters *ct_module_parameters(ct_module *module); /* free with ct_parameters_free; holds the module */
CT_API void ct_parameters_free(ct_parameters *list);
CT_API int ct_parameters_count(const ct_parameters *list);
CT_API const ct_parameter *ct_parameters_at(const ct_parameters *list, int i);
CT_API ct_tensor *ct_parameter_tensor(const ct_parameter *parameter); /* as it is now: a move replaces tensors */

/* Calls fn for the module and everything below it, parents first; stops when fn returns false and returns that. */
CT_API bool ct_module_apply(ct_module *module, bool (*fn)(void *context, const char *path, ct_module *module),
                            void *context);

CT_API bool ct_train(ct_module *module); /* training mode, also the mode at first: dropout drops, batch norm learns */
CT_API bool ct_eval(ct_module *module);
CT_API bool ct_module_training(const ct_module *module);
CT_API bool ct_module_freeze(ct_module *module, bool frozen); /* everything below: gradients wanted or not */
/* Converts every floating parameter and buffer, or moves all of them: all or, with an error, none. The tensors are then others,
 * without gradients; optimizers made before refuse to step after. */
CT_API bool ct_module_to_dtype(ct_module *module, ct_dtype dtype);
CT_API bool ct_module_to_device(ct_module *module, ct_device device);
CT_API ct_module *ct_module_copy(ct_module *module); /* deep; tensors that are shared inside stay so */
CT_API bool ct_module_zero_grad(ct_module *module);
CT_API int64_t ct_module_size(const ct_module *module); /* numbers that are learned, shared ones once */
/* A tree with options, shapes and counts: on standard output, or into text as ct_to_string does. */
CT_API bool ct_module_print(const ct_module *module);
CT_API size_t ct_module_to_string(const ct_module *module, char *text, size_t capacity);

/* Parameters and buffers into a state, and back, under prefix ("net." or ""). Taking checks everything before it changes
 * anything; its options (cotangent/state.h) tell what to do with what does not fit. Names are the module's own, or those
 * that its classes know from other libraries (ct_module_class.aliases), or become so by .renames; one tensor that goes by
 * several names here may come under any of them. Weights of convolutions are converted where the state has them in the other
 * layout: which one it is says the shape; a shape that fits both is [out, in, kernel...] unless the text PREFIXchannels_last
 * lists its name, which ct_module_put_state writes where there are such weights. */
CT_API bool ct_module_put_state(ct_module *module, ct_state *state, const char *prefix);
CT_API bool ct_module_take_state_p(ct_module *module, const ct_state *state, const char *prefix,
                                   const ct_load_options *options);

/* ---- Initializers --------------------------------------------------------------------------------
 * In place, on any floating tensor (a parameter may be given as it is). A weight is [out, in, kernel...], or with
 * channels_last [kernel..., in, out]; its fans are in and out times the elements of the kernel. Random ones draw from rng, NULL for
 * the default generator. */

typedef enum ct_init_fan { CT_FAN_IN = 0, CT_FAN_OUT, CT_FAN_AVERAGE } ct_init_fan;
typedef struct ct_init_options {
    size_t size;
    double gain;        /* 1; for kaiming sqrt(2), which suits relu */
    ct_init_fan fan;    /* of kaiming: in */
    bool channels_last; /* layout of the weight */
    ct_rng *rng;
} ct_init_options;

CT_API bool ct_init_constant(ct_tensor *x, double value);
CT_API bool ct_init_zeros(ct_tensor *x);
CT_API bool ct_init_ones(ct_tensor *x);
CT_API bool ct_init_uniform(ct_tensor *x, double lo, double hi, ct_rng *rng);
CT_API bool ct_init_normal(ct_tensor *x, double mean, double std, ct_rng *rng);
CT_API bool ct_init_truncated_normal(ct_tensor *x, double mean, double std, double lo, double hi, ct_rng *rng);
/* Variances that keep the size of what passes: xavier gain^2 2 / (in + out), kaiming gain^2 / fan, lecun gain^2 / in; uniform in
 * +-sqrt(3 variance), or normal. */
CT_API bool ct_init_xavier_uniform_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_xavier_normal_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_kaiming_uniform_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_kaiming_normal_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_lecun_uniform_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_lecun_normal_p(ct_tensor *x, const ct_init_options *options);
/* x as a matrix of its first axis by all others (channels_last: all others by the last): its rows or columns, whichever are
 * fewer, become orthogonal to rounding and of length gain, every such matrix as likely as any other. */
CT_API bool ct_init_orthogonal_p(ct_tensor *x, const ct_init_options *options);
/* The weight of a convolution that passes its channels through, in each of so many groups. */
CT_API bool ct_init_dirac(ct_tensor *x, int64_t groups);

/* ---- Layers --------------------------------------------------------------------------------------
 * Weights begin as in PyTorch unless it says otherwise: uniform in +-1/sqrt(fan in), norms with 1 and 0. Images are
 * [N, channels, height, width] or with channels_last [N, height, width, channels]; 1d and 3d alike. The names of parameters are
 * in brackets. Options are those of the ops (cotangent/ops.h), zero meaning the default. */

/* y = x weight^T + bias, on the last axis. [weight, bias] */
typedef struct ct_nn_linear_options {
    size_t size;
    bool no_bias;
    ct_activation activation; /* applied to the result, in the same pass */
} ct_nn_linear_options;
CT_API ct_module *ct_nn_linear_p(int64_t in, int64_t out, const ct_nn_linear_options *options);

/* Options of convolutions. */
typedef struct ct_nn_conv_options {
    size_t size;
    ct_dims kernels; /* by axis; wins over kernel */
    int64_t stride;  /* 1 */
    ct_dims strides;
    int64_t dilation; /* 1 */
    ct_dims dilations;
    int64_t pad; /* 0 */
    ct_dims pads;
    ct_pad_mode pad_mode; /* same: as many results as x has elements, over the stride */
    ct_pad_kind border; /* for conv?d: what the padding holds: zeros, or x mirrored, repeated... (explicit pads only) */
    int64_t groups;     /* not for depthwise_conv2d, separable_conv2d: 1 */
    int64_t output_padding;  /* for conv_transpose?d: 0 */
    ct_dims output_paddings; /* for conv_transpose?d */
    int64_t multiplier;      /* for depthwise_conv2d, separable_conv2d: 1; results per channel */
    int64_t offset_groups;   /* for deform_conv2d: 1 */
    bool modulated;          /* for deform_conv2d: a learned weight for each tap as well (v2) */
    bool no_bias;
    bool channels_last;
    ct_activation activation; /* applied to the result, in the same pass */
} ct_nn_conv_options;
/* Convolution over one, two or three axes. [weight, bias] */
CT_API ct_module *ct_nn_conv1d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);
CT_API ct_module *ct_nn_conv2d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);
CT_API ct_module *ct_nn_conv3d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);
/* Transposed convolution: the adjoint of a convolution, which makes an image larger by its stride. [weight, bias] */
CT_API ct_module *ct_nn_conv_transpose1d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);
CT_API ct_module *ct_nn_conv_transpose2d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);
CT_API ct_module *ct_nn_conv_transpose3d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);
/* Convolution of each channel by itself. [weight, bias] */
CT_API ct_module *ct_nn_depthwise_conv2d_p(int64_t channels, int64_t kernel, const ct_nn_conv_options *options);
/* A depthwise convolution with the given stride, padding and so on, then one of 1x1. [depthwise..., pointwise...] */
CT_API ct_module *ct_nn_separable_conv2d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);
/* A convolution whose taps are moved by offsets (and weighted, if modulated) that another one, which begins with zeros, computes
 * from x. [weight, bias, offset...] */
CT_API ct_module *ct_nn_deform_conv2d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options);

/* Options of pools. */
typedef struct ct_nn_pool_options {
    size_t size;
    ct_dims kernels;          /* by axis; wins over kernel */
    int64_t stride;           /* not for adaptive*: as the kernel */
    ct_dims strides;          /* not for adaptive* */
    int64_t pad;              /* not for adaptive*, lp*: 0 */
    ct_dims pads;             /* not for adaptive*, lp* */
    int64_t dilation;         /* for max*: 1 */
    ct_dims dilations;        /* for max* */
    ct_pad_mode pad_mode;     /* not for adaptive*, lp* */
    bool ceil_mode;           /* not for adaptive* */
    bool exclude_pad;         /* for avg* */
    int64_t divisor_override; /* for avg* */
    bool channels_last;
} ct_nn_pool_options;
/* The largest element of each window. */
CT_API ct_module *ct_nn_max_pool1d_p(int64_t kernel, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_max_pool2d_p(int64_t kernel, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_max_pool3d_p(int64_t kernel, const ct_nn_pool_options *options);
/* The mean of each window. */
CT_API ct_module *ct_nn_avg_pool1d_p(int64_t kernel, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_avg_pool2d_p(int64_t kernel, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_avg_pool3d_p(int64_t kernel, const ct_nn_pool_options *options);
/* The p-norm of each window. */
CT_API ct_module *ct_nn_lp_pool1d_p(double p, int64_t kernel, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_lp_pool2d_p(double p, int64_t kernel, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_lp_pool3d_p(double p, int64_t kernel, const ct_nn_pool_options *options);
/* The mean of as many windows along every axis (kernels: by axis) as results are wanted, whatever the size of x. */
CT_API ct_module *ct_nn_adaptive_avg_pool1d_p(int64_t output, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_adaptive_avg_pool2d_p(int64_t output, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_adaptive_avg_pool3d_p(int64_t output, const ct_nn_pool_options *options);
/* The largest element of so many windows. */
CT_API ct_module *ct_nn_adaptive_max_pool1d_p(int64_t output, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_adaptive_max_pool2d_p(int64_t output, const ct_nn_pool_options *options);
CT_API ct_module *ct_nn_adaptive_max_pool3d_p(int64_t output, const ct_nn_pool_options *options);

/* Options of norms. */
typedef struct ct_nn_norm_options {
    size_t size;
    ct_opt eps;         /* not for local_response_norm: 1e-5; of rms_norm the rounding unit */
    ct_opt momentum;    /* for batch_norm, instance_norm: 0.1; of the running statistics */
    bool no_affine;     /* not for instance_norm, local_response_norm: without weight and bias */
    bool no_bias;       /* not for rms_norm, local_response_norm: without bias */
    bool no_running;    /* for batch_norm: by the batch at hand in eval too */
    bool affine;        /* for instance_norm: it has no weight and bias by default */
    bool running;       /* for instance_norm: it has no running statistics by default */
    bool channels_last; /* not for layer_norm, rms_norm: they take the last axes */
    ct_dims shape;      /* for layer_norm, rms_norm: several axes; wins over features */
    ct_opt alpha;       /* for local_response_norm: 1e-4 */
    ct_opt beta;        /* for local_response_norm: 0.75 */
    ct_opt k;           /* for local_response_norm: 1 */
} ct_nn_norm_options;
/* Each channel by its mean and variance over the batch, with any number of axes. [weight, bias; buffers running_mean,
 * running_var] */
CT_API ct_module *ct_nn_batch_norm_p(int64_t channels, const ct_nn_norm_options *options);
/* Statistics of more items than one batch has, in training: every batch norm of net gives its sums over the batch, [channels + 1] and [channels],
 * to `sum`, which returns those over all (of other processes too: ct_nn_sync_batch_norm in cotangent/dist.h), with a gradient. NULL: by the batch again. */
typedef ct_tensor *(*ct_nn_sum_fn)(void *context, ct_tensor *x);
CT_API bool ct_nn_batch_norm_sum(ct_module *net, ct_nn_sum_fn sum, void *context);
/* Each group of channels by its mean and variance, item by item. [weight, bias] */
CT_API ct_module *ct_nn_group_norm_p(int64_t groups, int64_t channels, const ct_nn_norm_options *options);
/* Each channel by its mean and variance, item by item. [weight, bias; buffers running_mean, running_var] */
CT_API ct_module *ct_nn_instance_norm_p(int64_t channels, const ct_nn_norm_options *options);
/* Each row by its mean and variance. [weight, bias] */
CT_API ct_module *ct_nn_layer_norm_p(int64_t features, const ct_nn_norm_options *options);
/* Each row by the root of its mean square. [weight] */
CT_API ct_module *ct_nn_rms_norm_p(int64_t features, const ct_nn_norm_options *options);
/* Each element by the squares of that many neighboring channels. */
CT_API ct_module *ct_nn_local_response_norm_p(int64_t neighbors, const ct_nn_norm_options *options);

/* Rows of a table by integer: [...] to [..., dim]. Normal with standard deviation 1, or std; the row padding_idx is 0 and stays
 * so. [weight] */
typedef struct ct_nn_embedding_options {
    size_t size;
    ct_opt padding_idx;
    double std; /* 1 */
} ct_nn_embedding_options;
CT_API ct_module *ct_nn_embedding_p(int64_t count, int64_t dim, const ct_nn_embedding_options *options);

/* Recurrent networks over x [T, N, in], with batch_first [N, T, in]: uniform in +-1/sqrt(hidden). Tensors in: x, h0, for lstm c0,
 * both [layers * directions, N, hidden], and lengths, integers [N]; out: y [T, N, hidden * directions], h_n, and for lstm
 * c_n. Leave out any from the end; h0 and c0 may be NULL. Of a padded batch lengths says how many steps each sequence has (0
 * to T), as PyTorch's packed sequences do: y is zero after them, h_n and c_n are the states at each sequence's own end (h0 and
 * c0 where it has none), and the reverse direction begins there.
 * [weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_ih_l0_reverse, ..., weight_ih_l1, ...] */
typedef struct ct_nn_recurrent_options {
    size_t size;
    int64_t layers;     /* not for *_cell: 1 */
    bool bidirectional; /* not for *_cell */
    bool batch_first;   /* not for *_cell */
    bool no_bias;
    bool relu;      /* for rnn, rnn_cell: instead of tanh */
    double dropout; /* not for *_cell: 0; between layers */
} ct_nn_recurrent_options;
CT_API ct_module *ct_nn_rnn_p(int64_t in, int64_t hidden, const ct_nn_recurrent_options *options);
CT_API ct_module *ct_nn_lstm_p(int64_t in, int64_t hidden, const ct_nn_recurrent_options *options);
CT_API ct_module *ct_nn_gru_p(int64_t in, int64_t hidden, const ct_nn_recurrent_options *options);
/* One step: x [N, in], h [N, hidden] (and c) in; h (and c) out. Zeros where h is left out.
 * [weight_ih, weight_hh, bias_ih, bias_hh] */
CT_API ct_module *ct_nn_rnn_cell_p(int64_t in, int64_t hidden, const ct_nn_recurrent_options *options);
CT_API ct_module *ct_nn_lstm_cell_p(int64_t in, int64_t hidden, const ct_nn_recurrent_options *options);
CT_API ct_module *ct_nn_gru_cell_p(int64_t in, int64_t hidden, const ct_nn_recurrent_options *options);

/* Multi-head attention. Tensors in: query [..., T, dim], key (the query when left out) and value (the key), and a mask, bool (true
 * takes part) or numbers that are added, that broadcasts to [..., heads, Tq, Tk]; out: [..., T, dim]. Weights are xavier
 * uniform, biases zero. [in_proj_weight (q, k and v one above the other), in_proj_bias, out_proj...]; with key_dim or
 * value_dim [q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, out_proj...] */
typedef struct ct_nn_attention_options {
    size_t size;
    int64_t kv_heads;           /* heads of key and value, when fewer */
    int64_t key_dim, value_dim; /* features of key and value, when they differ from dim */
    double dropout;             /* of the attention weights */
    bool causal;                /* position i sees 0 to i */
    bool no_bias;
} ct_nn_attention_options;
CT_API ct_module *ct_nn_multi_head_attention_p(int64_t dim, int64_t heads, const ct_nn_attention_options *options);
/* What one was made with: its heads and, in *options, whose size the caller sets, the rest. 0 of another module, without an
 * error. */
CT_API int64_t ct_nn_attention_heads(const ct_module *attention, ct_nn_attention_options *options);

/* Transformer layers on [..., T, dim], and stacks of them. Encoder: x and a mask in. Decoder: x, memory (the encoder's result), a
 * mask for x and one for memory in. [self_attn..., multihead_attn..., linear1..., linear2..., norm1..., norm2..., norm3...];
 * stacks: [layers.0..., ..., norm...]. */
typedef struct ct_nn_transformer_options {
    size_t size;
    int64_t feedforward;      /* features inside: 4 dim */
    ct_activation activation; /* relu */
    double dropout;           /* 0 */
    bool norm_first;          /* norm before attention and feed-forward, not after the sum */
    bool causal;              /* of self-attention */
    bool no_bias;             /* of linear layers, attention and norms */
    bool final_norm;          /* for transformer_encoder, transformer_decoder: a norm after the last layer */
    ct_opt eps;               /* 1e-5; of the norms */
    int64_t kv_heads;         /* as in ct_nn_attention_options */
} ct_nn_transformer_options;
CT_API ct_module *ct_nn_transformer_encoder_layer_p(int64_t dim, int64_t heads,
                                                    const ct_nn_transformer_options *options);
CT_API ct_module *ct_nn_transformer_decoder_layer_p(int64_t dim, int64_t heads,
                                                    const ct_nn_transformer_options *options);
CT_API ct_module *ct_nn_transformer_encoder_p(int64_t layers, int64_t dim, int64_t heads,
                                              const ct_nn_transformer_options *options);
CT_API ct_module *ct_nn_transformer_decoder_p(int64_t layers, int64_t dim, int64_t heads,
                                              const ct_nn_transformer_options *options);

/* In training mode only. */
CT_API ct_module *ct_nn_dropout(double p);                       /* elements become zero with probability p */
CT_API ct_module *ct_nn_dropout2d(double p, bool channels_last); /* whole channels of images */
CT_API ct_module *ct_nn_dropout3d(double p, bool channels_last); /* whole channels of volumes */
CT_API ct_module *ct_nn_alpha_dropout(double p);                 /* elements, as selu wants them */
CT_API ct_module *ct_nn_stochastic_depth(double p);              /* whole items */

/* The activation of that name: see the op. */
CT_API ct_module *ct_nn_relu(void);
CT_API ct_module *ct_nn_relu6(void);
CT_API ct_module *ct_nn_selu(void);
CT_API ct_module *ct_nn_sigmoid(void);
CT_API ct_module *ct_nn_hard_sigmoid(void);
CT_API ct_module *ct_nn_log_sigmoid(void);
CT_API ct_module *ct_nn_tanh(void);
CT_API ct_module *ct_nn_softsign(void);
CT_API ct_module *ct_nn_silu(void);
CT_API ct_module *ct_nn_mish(void);
CT_API ct_module *ct_nn_hard_swish(void);
CT_API ct_module *ct_nn_gelu(void);         /* exact gelu */
CT_API ct_module *ct_nn_gelu_tanh(void);    /* gelu approximated by tanh */
CT_API ct_module *ct_nn_gelu_sigmoid(void); /* gelu approximated by sigmoid */
CT_API ct_module *ct_nn_leaky_relu(double slope);
CT_API ct_module *ct_nn_elu(double alpha);
CT_API ct_module *ct_nn_celu(double alpha);
CT_API ct_module *ct_nn_softplus(double beta, double threshold);
CT_API ct_module *ct_nn_threshold(double threshold, double value);
CT_API ct_module *ct_nn_softmax(int64_t axis);
CT_API ct_module *ct_nn_log_softmax(int64_t axis);
CT_API ct_module *ct_nn_glu(int64_t axis);
/* One slope, or one for each channel (axis 1), all `slope` at first (PyTorch: 0.25). [weight] */
CT_API ct_module *ct_nn_prelu(int64_t count, double slope);
/* The layer of one of those that others can fuse; CT_ACT_NONE: identity. */
CT_API ct_module *ct_nn_activation(ct_activation activation);

/* An image made larger by a factor, or to a size. */
typedef struct ct_nn_upsample_options {
    size_t size;
    ct_dims output_size; /* instead of the scale */
    ct_resize_mode mode; /* nearest */
    bool align_corners;
    bool channels_last;
} ct_nn_upsample_options;
CT_API ct_module *ct_nn_upsample_p(double scale, const ct_nn_upsample_options *options);
/* Shapes. */
CT_API ct_module *ct_nn_pixel_shuffle(int64_t factor, bool channels_last);   /* channels to pixels */
CT_API ct_module *ct_nn_pixel_unshuffle(int64_t factor, bool channels_last); /* pixels to channels */
CT_API ct_module *ct_nn_flatten(void);                                       /* all axes but the first made one */
CT_API ct_module *ct_nn_flatten_axes(int64_t start, int64_t end);            /* these, the last one too */
CT_API ct_module *ct_nn_unflatten(int64_t axis, ct_dims shape); /* an axis made several; one of them may be -1 */
CT_API ct_module *ct_nn_permute(ct_dims axes);                  /* axes in another order */
CT_API ct_module *ct_nn_pad(ct_dims pads, ct_pad_kind mode, double value); /* elements around, as ct_pad */
CT_API ct_module *ct_nn_identity(void);                                    /* x as it is */

/* One after the other, each taking the result of the one before; named "0", "1", ... . An activation that the layer before it
 * can apply in its own pass is applied there: the same numbers, one pass less. */
CT_API ct_module *ct_nn_sequential_n(ct_module *const *modules, int n);
/* Adds one more, named by its place. Owns it. */
CT_API bool ct_nn_append(ct_module *sequential, ct_module *module);
/* activation(body(x) + shortcut(x)); shortcut NULL: x itself. [body..., shortcut...] */
CT_API ct_module *ct_nn_residual(ct_module *body, ct_module *shortcut, ct_activation activation);
/* A function as a module. name is copied; release, if given, is called with context when the module dies. */
typedef ct_tensor *(*ct_nn_function)(void *context, ct_tensor *x);
CT_API ct_module *ct_nn_lambda(const char *name, ct_nn_function fn, void *context, void (*release)(void *context));

/* ---- Models --------------------------------------------------------------------------------------
 * Images are [N, channels, height, width] whatever the layout that the model computes in (channels_last); tokens are
 * i64 [N, T] and give logits [N, T, vocabulary]. Results of classifiers are logits [N, classes]. */

typedef struct ct_nn_model_options {
    size_t size;
    int64_t channels;   /* of the image: 3 (lenet: 1) */
    int64_t classes;    /* 10; 1000 with imagenet; of unet: 2 */
    bool imagenet;      /* the layout for images of 224 x 224, else for small ones such as 32 x 32 */
    bool batch_norm;    /* of vgg and mlp */
    double dropout;     /* 0; not of unet */
    bool channels_last; /* computes in this layout */
    double width;       /* of resnet, vgg and mobilenet_v2: multiplies the channels, 1 */
} ct_nn_model_options;
/* Linear layers of these sizes with an activation (CT_ACT_NONE: relu) between them. x is flattened first. */
CT_API ct_module *ct_nn_mlp_p(ct_dims sizes, ct_activation activation, const ct_nn_model_options *options);
/* Two convolutions of 5x5 (32 and 64 channels) with pools, 256 hidden: for square images of that size. */
CT_API ct_module *ct_nn_lenet_p(int64_t image, const ct_nn_model_options *options);
CT_API ct_module *ct_nn_resnet_p(int depth, const ct_nn_model_options *options); /* 18, 34, 50, 101 or 152 */
CT_API ct_module *ct_nn_vgg_p(int depth, const ct_nn_model_options *options);    /* 11, 13, 16 or 19 */
CT_API ct_module *ct_nn_mobilenet_v2_p(const ct_nn_model_options *options);
/* [N, channels, H, W] to [N, classes, H, W]: that many times down and up again, `base` channels at the top. H and W are multiples of
 * 2^levels. */
CT_API ct_module *ct_nn_unet_p(int64_t levels, int64_t base, const ct_nn_model_options *options);

typedef struct ct_nn_vit_options {
    size_t size;
    int64_t image, patch;       /* 32, 4 */
    int64_t channels, classes;  /* 3, 10 */
    int64_t dim, layers, heads; /* 192, 6, 3 */
    int64_t feedforward;        /* 4 dim */
    double dropout;
} ct_nn_vit_options;
CT_API ct_module *ct_nn_vit_p(const ct_nn_vit_options *options);

typedef struct ct_nn_gpt_options {
    size_t size;
    int64_t context;            /* the most tokens at once: 256 */
    int64_t dim, layers, heads; /* 384, 6, 6 */
    int64_t feedforward;        /* 4 dim */
    double dropout;
    bool tied;    /* the output layer shares the embedding's weight */
    bool no_bias; /* of linear layers and norms */
} ct_nn_gpt_options;
CT_API ct_module *ct_nn_gpt_p(int64_t vocabulary, const ct_nn_gpt_options *options);

typedef struct ct_nn_lstm_lm_options {
    size_t size;
    int64_t dim, hidden, layers; /* 256, 512, 2 */
    double dropout;
    bool tied; /* needs dim = hidden */
} ct_nn_lstm_lm_options;
/* Tensors in: tokens, h, c; out: logits, h, c; leave out any from the end. */
CT_API ct_module *ct_nn_lstm_lm_p(int64_t vocabulary, const ct_nn_lstm_lm_options *options);

/* ---- Layers by name ------------------------------------------------------------------------------
 * The constructors of layers above that are given numbers, truths, choices and lists: what a binding needs to offer them all.
 * Containers and functions (sequential, residual, lambda) are not among them. */

typedef struct ct_layer_info {
    const char *name; /* "conv2d": what ct_nn_conv2d makes */
    const char *doc;
} ct_layer_info;
CT_API const ct_layer_info *ct_layer_at(int i);              /* NULL past the end */
CT_API const ct_layer_info *ct_layer_find(const char *name); /* NULL when there is none; no error */
/* Its i-th argument, NULL past the end: those that C takes by place first, then its options; number is the default where that
 * is not zero, nothing or false. */
CT_API const ct_attr *ct_layer_argument(const ct_layer_info *info, int i);
typedef struct ct_named_text {
    const char *name, *text;
} ct_named_text;
/* A layer from n arguments, each a text as ct_attrs_set takes it: {"in", "3"}, {"strides", "2,1"}, {"activation", "relu"}. */
CT_API ct_module *ct_layer_build(const ct_layer_info *info, const ct_named_text *given, int n);

/* ---- Token by token ------------------------------------------------------------------------------
 * A model with causal attention, run on a text that grows: each pass is given the new tokens alone, and attention takes the keys
 * and values of those before from a cache, so a token costs one position's work however long the text is.
 *     ct_nn_cache *cache = ct_nn_cache_new(gpt, 256);
 *     ct_tensor *logits = ct_forward_cached(cache, prompt);      // [1, T] tokens: [1, T, vocabulary]
 *     logits = ct_forward_cached(cache, next);                   // [1, 1]
 * The results are those of ct_forward on all tokens so far, at the new positions, but for the order of sums. It works with
 * ct_nn_gpt, with causal ct_nn_multi_head_attention and transformer layers and stacks, and with modules of your own that are
 * made of these: ct_forward_position is what they add to positions. Attention to something else than x (a decoder's memory) is
 * computed anew in each pass; attention to x itself that is not causal is an error, since earlier results would change. */
typedef struct ct_nn_cache ct_nn_cache;
/* For at most capacity tokens; holds net. Memory is taken in the first pass: two tensors [..., heads, capacity, features of a
 * head] for each attention. */
CT_API ct_nn_cache *ct_nn_cache_new(ct_module *net, int64_t capacity);
CT_API void ct_nn_cache_free(ct_nn_cache *cache);
CT_API int64_t ct_nn_cache_length(const ct_nn_cache *cache); /* tokens that it holds */
CT_API int64_t ct_nn_cache_capacity(const ct_nn_cache *cache);
/* Forgets the tokens from that place on: 0 begins anew, also with another batch size; fewer than there are takes tokens back. */
CT_API bool ct_nn_cache_truncate(ct_nn_cache *cache, int64_t length);
/* ct_forward and ct_forward_n of the cache's module on the tokens that follow, without recording gradients. After an error the
 * cache holds what it held before. One cache serves one thread at a time. */
CT_API ct_tensor *ct_forward_cached(ct_nn_cache *cache, ct_tensor *x);
CT_API bool ct_forward_cached_n(ct_nn_cache *cache, ct_tensor *const *in, int n, ct_tensor **out, int m);
/* Inside a forward: how many tokens came before those at hand; 0 without a cache. */
CT_API int64_t ct_forward_position(void);

/* The models by name, with their settings as numbers (a flag is 0 or 1): for programs that let people choose. */
typedef struct ct_model_info {
    const char *name, *doc;
    const char *input;          /* "vector" [N, inputs], "image" [N, channels, H, W] or "tokens" i64 [N, T] */
    const ct_setting *settings; /* data decides: inputs, channels, image (side), classes, vocabulary, context */
    int count;                  /* of settings */
    ct_module *(*build)(const double *values);
} ct_model_info;
CT_API const ct_model_info *ct_model_at(int i);                                 /* NULL past the end */
CT_API const ct_model_info *ct_model_find(const char *name);                    /* NULL when there is none; no error */
CT_API int ct_model_setting_index(const ct_model_info *info, const char *name); /* -1 when there is none; no error */
/* One value a setting, in their order; NULL: the usual ones. */
CT_API ct_module *ct_model_build(const ct_model_info *info, const double *values);

#ifndef __cplusplus
#define ct_nn_sequential(...)                             \
    ct_nn_sequential_n((ct_module *const[]){__VA_ARGS__}, \
                       (int)(sizeof((ct_module *const[]){__VA_ARGS__}) / sizeof(ct_module *)))
#endif

#ifdef __cplusplus
}
#endif

#include <cotangent/nn_options.h> /* ct_nn_conv2d(3, 16, 5, .pad = 2) and so on, over the functions ending in _p */

#endif
