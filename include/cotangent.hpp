/* Cotangent for C++17 and later: owned tensors, guards instead of blocks, errors as exceptions, options as a last argument. A
 * thin layer over cotangent.h, which it includes and which says what everything means; the C functions take a ct::tensor
 * where they take a ct_tensor *.
 *
 *     ct::tensor x = ct::randn({64, 784}), w = ct::set_requires_grad(ct::randn({784, 10}));
 *     ct::tensor loss = ct::mean(ct::square(ct::matmul(x, w)));
 *     ct::check(ct_backward(loss));
 *     ct::sum(x, {.axes = ct::dims{0}, .keepdim = true});      // C++20; in C++17 fill a ct_sum_options and give that
 *
 * (GCC warns of options that are not named, in C++ alone: -Wno-missing-field-initializers.)
 *
 * A list inside options is written ct::dims{...}: a bare {0, 1} there would be the C struct, of which the first number is the count.
 *
 * Errors throw ct::error and are cleared. Without exceptions (CT_NO_EXCEPTIONS, or a compiler that has them off) they stay
 * pending, as in C: a tensor that failed is empty, calls nest, and ct_ok() tells at the end.
 *
 * Threads: as in cotangent.h. A ct::tensor is one reference: copies of it may go to other threads and be dropped there; one and the
 * same object is for one thread at a time. Guards end on the thread, and in the order, they were made. */
#ifndef COTANGENT_HPP
#define COTANGENT_HPP

#include <cotangent.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(CT_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define CT_NO_EXCEPTIONS 1
#endif

namespace ct {

/* ---- Errors -------------------------------------------------------------------------------------- */

class error : public std::runtime_error {
  public:
    error(ct_code code, const std::string &text, std::string op)
        : std::runtime_error(text), code_(code), op_(std::move(op)) {}
    ct_code code() const noexcept { return code_; }
    const std::string &op() const noexcept { return op_; } /* the op or function that was called */

  private:
    ct_code code_;
    std::string op_;
};

/* Turns this thread's pending error, if there is one, into an exception. Returns what it was given: ct::check(ct_backward(y)). */
inline bool check(bool ok = true) {
#ifndef CT_NO_EXCEPTIONS
    if (!ct_ok()) {
        const error raised(ct_error_code(), ct_error(), ct_error_op());
        ct_error_clear();
        throw raised;
    }
#endif
    return ok;
}

/* ---- Small values -------------------------------------------------------------------------------- */

/* A list of sizes, axes or strides: {2, 3}. */
struct dims : ct_dims {
    dims() : ct_dims() {}
    dims(const ct_dims &list) : ct_dims(list) {}
    dims(std::initializer_list<std::int64_t> list) : ct_dims() {
        const int count = static_cast<int>(list.size());
        n = list.size() <= CT_MAX_LIST ? count : -1; /* which every function refuses */
        int at = 0;
        for (const std::int64_t value : list)
            if (at < CT_MAX_LIST) d[at++] = value;
    }
};

/* An option for which zero is a value of its own, as CT_SET(0) in C. */
inline ct_opt set(double value) { return ct_opt{true, value}; }

/* Options for the C functions whose names end in _p: ct_nn_linear_p(2, 3, ct::with<ct_nn_linear_options>({.no_bias = true})). */
template <class Options> class with {
  public:
    with(Options options = {}) : options_(options) { options_.size = sizeof options_; }
    operator const Options *() const noexcept { return &options_; }

  private:
    Options options_;
};

/* What C frees by hand: ct::holder<ct_module, ct_module_free> net(ct_nn_linear_p(2, 3, nullptr)). */
template <auto free_function> struct freed_by {
    template <class Type> void operator()(Type *object) const noexcept { free_function(object); }
};
template <class Type, auto free_function> using holder = std::unique_ptr<Type, freed_by<free_function>>;

/* ---- Tensors ------------------------------------------------------------------------------------- */

/* An owned reference to a tensor, or none. */
class tensor {
  public:
    tensor() noexcept = default;
    explicit tensor(ct_tensor *borrowed) : x_(borrowed ? ct_keep(borrowed) : nullptr) {}
    tensor(const tensor &other) : tensor(other.x_) {}
    tensor(tensor &&other) noexcept : x_(other.release()) {}
    tensor &operator=(tensor other) noexcept {
        std::swap(x_, other.x_);
        return *this;
    }
    ~tensor() { ct_drop(x_); }

    /* Takes over a reference that is the caller's already, and gives it up. */
    static tensor owned(ct_tensor *mine) noexcept {
        tensor made;
        made.x_ = mine;
        return made;
    }
    ct_tensor *release() noexcept { return std::exchange(x_, nullptr); }

    operator ct_tensor *() const noexcept { return x_; }
    ct_tensor *get() const noexcept { return x_; }
    /* A place for a further result, in options: ct::sort(x, -1, {.indices = indices.out()}). */
    ct_tensor **out() {
        ct_drop(release());
        return &x_;
    }

    dims shape() const { return ct_shape(x_); }
    std::int64_t dim(int axis) const { return ct_dim(x_, axis); }
    std::int64_t numel() const { return ct_numel(x_); }
    ct_dtype dtype() const { return ct_dtype_of(x_); }
    tensor grad() const { return tensor(ct_grad_of(x_)); }

    /* The number of a one-element tensor, and all numbers in row-major order; of integers exactly. */
    template <class Number = double> Number item() const {
        const Number value =
            std::is_integral_v<Number> ? static_cast<Number>(ct_item_i64(x_)) : static_cast<Number>(ct_item(x_));
        check();
        return value;
    }
    template <class Number> std::vector<Number> to_vector() const;

  private:
    ct_tensor *x_ = nullptr;
};

/* The dtype of a C++ type. */
template <class Number> constexpr ct_dtype dtype_of() {
    if constexpr (std::is_same_v<Number, float>) return CT_F32;
    else if constexpr (std::is_same_v<Number, double>) return CT_F64;
    else if constexpr (std::is_same_v<Number, bool>) return CT_BOOL;
    else if constexpr (std::is_same_v<Number, std::int8_t>) return CT_I8;
    else if constexpr (std::is_same_v<Number, std::int16_t>) return CT_I16;
    else if constexpr (std::is_same_v<Number, std::int32_t>) return CT_I32;
    else if constexpr (std::is_same_v<Number, std::int64_t>) return CT_I64;
    else if constexpr (std::is_same_v<Number, std::uint8_t>) return CT_U8;
    else if constexpr (std::is_same_v<Number, std::uint16_t>) return CT_U16;
    else if constexpr (std::is_same_v<Number, std::uint32_t>) return CT_U32;
    else if constexpr (std::is_same_v<Number, std::uint64_t>) return CT_U64;
    else static_assert(sizeof(Number) == 0, "no dtype has elements of this type");
}

/* An argument that is a list of tensors: {a, b}, or a vector of them. */
class tensors {
  public:
    tensors(std::initializer_list<ct_tensor *> list) : list_(list) {}
    tensors(const std::vector<tensor> &list) : list_(list.begin(), list.end()) {}
    ct_tensor *const *data() const noexcept { return list_.data(); }
    int count() const noexcept { return static_cast<int>(list_.size()); }

  private:
    std::vector<ct_tensor *> list_;
};

/* ---- Guards -------------------------------------------------------------------------------------- */

/* Until its end, what C functions make belongs to this scope. The functions of this namespace leave nothing in one. */
class scope {
  public:
    scope() : mark_(ct_scope_begin()) {}
    ~scope() { ct_scope_end(mark_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    ct_scope_mark mark_;
};

/* Nothing is recorded until its end. */
class no_grad {
  public:
    no_grad() : before_(ct_set_grad_enabled(false)) {}
    ~no_grad() { ct_set_grad_enabled(before_); }
    no_grad(const no_grad &) = delete;
    no_grad &operator=(const no_grad &) = delete;

  private:
    bool before_;
};

/* Mixed precision until its end. */
class autocast {
  public:
    explicit autocast(ct_dtype dtype) : before_(ct_set_autocast(dtype)) {}
    ~autocast() { ct_set_autocast(before_); }
    autocast(const autocast &) = delete;
    autocast &operator=(const autocast &) = delete;

  private:
    ct_dtype before_;
};

namespace detail {

/* One call of a C function: what it leaves in its scope goes, but for the results, which are owned. */
class call {
  public:
    tensor result(ct_tensor *made) {
        tensor kept(made);
        check();
        return kept;
    }
    void keep(ct_tensor **further) {
        if (further && *further) ct_keep(*further);
    }
    std::vector<tensor> results(bool ok, const std::vector<ct_tensor *> &made) {
        std::vector<tensor> kept;
        check();
        if (ok)
            for (ct_tensor *const x : made) kept.emplace_back(x);
        return kept;
    }

  private:
    scope scope_;
};

} // namespace detail

/* ---- Making tensors ------------------------------------------------------------------------------ */

template <class Number> tensor from_data(const Number *data, const dims &shape) {
    detail::call call;
    return call.result(ct_from_data(data, shape, dtype_of<Number>()));
}
template <class Number> tensor from_vector(const std::vector<Number> &data, const dims &shape) {
    std::int64_t count = 1;
    for (int i = 0; i < shape.n && i < CT_MAX_LIST; i++) count *= shape.d[i];
    if (count != static_cast<std::int64_t>(data.size())) {
        ct_fail(CT_ERR_SHAPE, "from_vector", "there are %zu numbers, and the shape has %lld elements", data.size(),
                static_cast<long long>(count));
        check();
        return tensor();
    }
    return from_data(data.data(), shape);
}
inline tensor scalar(double value, ct_dtype dtype = CT_F32) {
    detail::call call;
    return call.result(ct_scalar(value, dtype));
}
inline tensor wrap(void *data, const dims &shape, ct_dtype dtype, ct_wrap_options options = {}) {
    detail::call call;
    options.size = sizeof options;
    return call.result(ct_wrap_p(data, shape, dtype, &options));
}
inline tensor set_requires_grad(const tensor &x, bool on = true) {
    detail::call call;
    return call.result(ct_set_requires_grad(x, on));
}
inline tensor detach(const tensor &x) {
    detail::call call;
    return call.result(ct_detach(x));
}

template <class Number> std::vector<Number> tensor::to_vector() const {
    static_assert(!std::is_same_v<Number, bool>, "a std::vector<bool> has no elements to write into");
    if (x_ && ct_dtype_of(x_) != dtype_of<Number>())
        ct_fail(CT_ERR_DTYPE, "to_vector", "x is %s", ct_dtype_name(ct_dtype_of(x_)));
    check();
    std::vector<Number> all(static_cast<std::size_t>(ct_ok() ? numel() : 0));
    check(all.empty() || ct_read(x_, all.data(), all.size() * sizeof(Number)));
    return all;
}

} // namespace ct

#include <cotangent/ops.hpp>

namespace ct {

inline tensor operator+(const tensor &a, const tensor &b) { return add(a, b); }
inline tensor operator-(const tensor &a, const tensor &b) { return sub(a, b); }
inline tensor operator*(const tensor &a, const tensor &b) { return mul(a, b); }
inline tensor operator/(const tensor &a, const tensor &b) { return div(a, b); }
inline tensor operator+(const tensor &a, double b) { return add_s(a, b); }
inline tensor operator-(const tensor &a, double b) { return sub_s(a, b); }
inline tensor operator*(const tensor &a, double b) { return mul_s(a, b); }
inline tensor operator/(const tensor &a, double b) { return div_s(a, b); }
inline tensor operator+(double a, const tensor &b) { return add_s(b, a); }
inline tensor operator-(double a, const tensor &b) { return rsub_s(b, a); }
inline tensor operator*(double a, const tensor &b) { return mul_s(b, a); }
inline tensor operator/(double a, const tensor &b) { return rdiv_s(b, a); }
inline tensor operator-(const tensor &a) { return neg(a); }

} // namespace ct

#endif
