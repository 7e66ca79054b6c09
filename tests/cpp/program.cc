/* cotangent.hpp as a program uses it. Compiled as C++17 and C++20, with exceptions and without (tests/check_cpp.sh). */
#include <cotangent.hpp>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

static int failures = 0;
#define CHECK(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            std::printf("line %d: %s (error: %s)\n", __LINE__, #condition, ct_error()); \
            failures++;                                                                 \
        }                                                                               \
    } while (0)

static void tensors_are_owned() {
    const std::int64_t before = ct_live_objects();
    {
        ct::tensor x = ct::from_vector<float>({1, 2, 3, 4}, {2, 2}), y = x, empty;
        CHECK(x.get() == y.get() && !empty && x);
        y = ct::exp(x);
        ct::tensor moved = std::move(y);
        CHECK(!y && moved.numel() == 4 && moved.dim(-1) == 2 && moved.shape().n == 2);
        ct::tensor &same = x;
        x = same;
        CHECK(x.to_vector<float>() == (std::vector<float>{1, 2, 3, 4}));
        ct_tensor *raw = moved.release();
        ct::tensor again = ct::tensor::owned(raw);
        CHECK(std::abs(again.to_vector<float>()[0] - std::exp(1.0f)) < 1e-6f);
        for (int i = 0; i < 1000; i++) x = ct::add_s(x, 1); // nothing gathers in the root scope
        CHECK(ct_live_objects() <= before + 4);
    }
    CHECK(ct_live_objects() == before);
}

static void arithmetic_reads_as_such() {
    ct::tensor a = ct::from_vector<double>({1, 2}, {2}), b = ct::from_vector<double>({3, 5}, {2});
    CHECK(((a + b) * 2.0 - 1).to_vector<double>() == (std::vector<double>{7, 13}));
    CHECK((1 - a).to_vector<double>() == (std::vector<double>{0, -1}));
    CHECK((2 / a / b).to_vector<double>()[1] == 0.2);
    CHECK((-a + 1 * b).to_vector<double>() == (std::vector<double>{2, 3}));
}

static void options_are_a_last_argument() {
    ct::tensor x = ct::from_vector<float>({1, 5, 3, 4}, {2, 2});
    ct_sum_options columns{};
    columns.axes = ct::dims{0};
    columns.keepdim = true;
    ct::tensor sums = ct::sum(x, columns);
    CHECK(sums.shape().n == 2 && sums.to_vector<float>() == (std::vector<float>{4, 9}));
    CHECK(ct::sum(x).item() == 13);
    ct::tensor order;
    ct_sort_options with_indices{};
    with_indices.indices = order.out();
    ct::tensor sorted = ct::sort(x, 1, with_indices);
    CHECK(sorted.to_vector<float>()[0] == 1 &&
          order.to_vector<std::int64_t>() == (std::vector<std::int64_t>{0, 1, 0, 1}));
    CHECK(ct::cat({x, x, sums}, 0).dim(0) == 5);
    const std::vector<ct::tensor> list{x, x};
    CHECK(ct::stack(list, 0).dim(0) == 2);
    CHECK(ct::zeros({2, 3}).numel() == 6 && ct::zeros({}).shape().n == 0 && ct::reshape(x, {4}).dim(0) == 4);
    std::vector<ct::tensor> grid = ct::meshgrid({ct::arange(0, 3, 1), ct::arange(0, 2, 1)}, 2);
    CHECK(grid.size() == 2 && grid[1].dim(0) == 3);
    ct_var_options biased{};
    biased.correction = ct::set(0);
    CHECK(ct::var(ct::from_vector<float>({1, 3}, {2}), biased).item() == 1);
#if __cplusplus >= 202002L
    CHECK(ct::sum(x, {.axes = ct::dims{1}}).to_vector<float>() == (std::vector<float>{6, 7}));
    CHECK(ct::full({2}, 3, {.dtype = CT_I32}).dtype() == CT_I32);
    ct::holder<ct_module, ct_module_free> plain(
        ct_nn_linear_p(2, 3, ct::with<ct_nn_linear_options>({.no_bias = true})));
    CHECK(plain && ct_module_param_count(plain.get()) == 1);
#endif
}

static void integers_are_exact() {
    const std::int64_t odd = 9007199254740993;
    CHECK(ct::full_i64({2}, odd).to_vector<std::int64_t>()[1] == odd);
    CHECK(ct::sum(ct::full_i64({1}, odd)).item<std::int64_t>() == odd);
    CHECK(ct::tensor(ct_scalar_i64(odd, CT_I64)).item<std::int64_t>() == odd);
}

static int wraps_released = 0;
static void wrap_released(void *, void *) { wraps_released++; }

static void memory_is_wrapped() {
    float memory[6] = {0, 1, 2, 3, 4, 5};
    {
        ct_wrap_options options{};
        options.strides = ct::dims{1, 3};
        options.release = wrap_released;
        ct::tensor x = ct::wrap(memory, {3, 2}, CT_F32, options);
        CHECK(x.to_vector<float>() == (std::vector<float>{0, 3, 1, 4, 2, 5}));
        CHECK(wraps_released == 0);
    }
    CHECK(wraps_released == 1);
}

static void training_learns() {
    ct_seed(1);
    ct::holder<ct_module, ct_module_free> net(ct_nn_linear_p(2, 1, nullptr));
    ct_sgd_options rate{};
    rate.size = sizeof rate;
    rate.lr = 0.1;
    ct::holder<ct_optim, ct_optim_free> learner(ct_sgd_p(net.get(), &rate));
    ct::tensor x = ct::randn({64, 2}), target = ct::sum(x, ct_sum_options{0, ct::dims{1}, true});
    double first = 0, last = 0;
    for (int i = 0; i < 100; i++) {
        ct::scope scope;
        ct::tensor y(ct_forward(net.get(), x)), loss = ct::mean(ct::square(y - target));
        last = loss.item();
        if (i == 0) first = last;
        ct::check(ct_backward(loss));
        ct::check(ct_optim_step(learner.get()));
        ct::check(ct_optim_zero_grad(learner.get()));
    }
    CHECK(last < 0.01 * first);
    ct::tensor w = ct::set_requires_grad(ct::randn({3}));
    {
        ct::no_grad off;
        CHECK(!ct_requires_grad(ct::mul(w, w)));
    }
    ct::tensor y = ct::sum(w * w);
    CHECK(ct_requires_grad(y) && !w.grad());
    CHECK(ct::check(ct_backward(y)) && w.grad().numel() == 3 && !ct_requires_grad(ct::detach(y)));
    {
        ct::autocast half(CT_BF16);
        CHECK(ct::matmul(ct::ones({2, 2}), ct::ones({2, 2})).dtype() == CT_BF16);
    }
}

static void copies_go_to_other_threads() {
    ct::tensor x = ct::ones({100});
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([x] {
            ct::tensor own = x;
            CHECK(ct::sum(own).item() == 100);
        });
    for (std::thread &thread : threads) thread.join();
}

static void errors_are_exceptions_or_wait() {
    ct::tensor a = ct::ones({2, 3});
#ifndef CT_NO_EXCEPTIONS
    const std::int64_t before = ct_live_objects();
    bool caught = false;
    try {
        ct::matmul(a, a);
    } catch (const ct::error &e) {
        caught = e.code() == CT_ERR_SHAPE && e.op() == "matmul" &&
                 std::string(e.what()).find("inner dimensions differ") != std::string::npos;
    }
    CHECK(caught && ct_ok() && ct_live_objects() == before);
    caught = false;
    try {
        a.item();
    } catch (const ct::error &e) {
        caught = e.code() == CT_ERR_SHAPE;
    }
    CHECK(caught && ct_ok());
    caught = false;
    try {
        ct::from_vector<float>({1, 2, 3}, {2});
    } catch (const std::runtime_error &) {
        caught = true;
    }
    CHECK(caught && ct_ok());
#else
    ct::tensor nothing = ct::sum(ct::matmul(a, a));
    CHECK(!nothing && ct_error_code() == CT_ERR_SHAPE && std::isnan(nothing.item()));
    ct_error_clear();
    CHECK(!ct::from_vector<float>({1, 2, 3}, {2}) && !ct_ok());
    ct_error_clear();
#endif
}

int main() {
    const std::int64_t before = ct_live_objects();
    {
        ct::scope scope;
        tensors_are_owned();
        arithmetic_reads_as_such();
        options_are_a_last_argument();
        integers_are_exact();
        memory_is_wrapped();
        training_learns();
        copies_go_to_other_threads();
        errors_are_exceptions_or_wait();
    }
    CHECK(ct_ok() && ct_live_objects() == before);
    return failures != 0;
}
