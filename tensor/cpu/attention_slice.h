// Attention of 16-bit elements, for attention.cpp alone: one head of keys and values, with the
// query heads that read it, is converted to floats for as long as a task works on it.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/cpu/attention_data.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/workspace.h"

namespace penstock::tensor::cpu {

// The floats of `columns` side by side in rows [begin, end), from x to out and back.
struct Columns {
  std::int64_t begin, end, columns;
};
template <class T>
void load_columns(const Columns& c, const T* x, std::int64_t x_stride, float* out,
                  std::int64_t out_stride) {
  for (std::int64_t row = c.begin; row < c.end; ++row) {
    widen(x + row * x_stride, out + row * out_stride, static_cast<std::size_t>(c.columns));
  }
}
template <class T>
void store_columns(const Columns& c, const float* x, std::int64_t x_stride, T* out,
                   std::int64_t out_stride) {
  for (std::int64_t row = c.begin; row < c.end; ++row) {
    narrow(x + row * x_stride, out + row * out_stride, static_cast<std::size_t>(c.columns));
  }
}

// Of one batch row and one head of keys, with the sizes of that alone. Rows keep their numbers.
template <class T>
class AttentionSlice {
 public:
  AttentionSlice(const Context& context, const AttentionSizes& all, const AttentionTask& task)
      : context_(context),
        all_(all),
        task_(task),
        first_head_(task.kv_head * all.group()),
        one_{1, all.tokens, all.group(), 1, all.head, all.causal},
        rows_(all.keys_before(task.end)),
        qkv_(context, rows_ * one_.width()),
        out_(context, rows_ * one_.out_width()) {}

  // Computes the task's rows of out, and their log_sum, with run(data, task).
  template <class Run>
  void forward(const T* qkv, T* out, float* log_sum, const Run& run) const {
    load_qkv(qkv);
    run(AttentionData<float>{context_, one_, qkv_.data(), out_.data(), log_sum + first_row(),
                             nullptr, nullptr},
        one_task());
    store_columns({task_.begin, task_.end, one_.out_width()}, out_.data(), one_.out_width(),
                  out + all_.result(task_.batch, first_head_), all_.out_width());
  }

  // Computes this slice of d_qkv; the task has all rows.
  template <class Run>
  void backward(const T* d_out_all, const T* qkv, const T* out, float* log_sum, T* d_qkv_all,
                const Run& run) const {
    const Workspace<float> d_out(context_, rows_ * one_.out_width());
    const Workspace<float> d_qkv(context_, rows_ * one_.width());
    load_qkv(qkv);
    load_result(out, out_.data());
    load_result(d_out_all, d_out.data());
    run(AttentionData<float>{context_, one_, qkv_.data(), out_.data(), log_sum + first_row(),
                             d_out.data(), d_qkv.data()},
        one_task());
    for_parts([&](std::int64_t whole, std::int64_t part, std::int64_t columns) {
      store_columns({0, rows_, columns}, d_qkv.data() + part, one_.width(), d_qkv_all + whole,
                    all_.width());
    });
  }

 private:
  AttentionTask one_task() const { return {0, 0, task_.begin, task_.end}; }
  std::int64_t first_row() const { return all_.row(task_.batch, first_head_); }

  // Queries, keys and values: where they begin in the whole and in the slice, and how wide they
  // are.
  template <class Visit>
  void for_parts(const Visit& visit) const {
    visit(all_.query(task_.batch, first_head_), one_.query(0, 0), one_.out_width());
    visit(all_.key(task_.batch, task_.kv_head), one_.key(0, 0), one_.head);
    visit(all_.value(task_.batch, task_.kv_head), one_.value(0, 0), one_.head);
  }
  void load_qkv(const T* qkv) const {
    for_parts([&](std::int64_t whole, std::int64_t part, std::int64_t columns) {
      const bool queries = part == 0;
      load_columns({queries ? task_.begin : 0, queries ? task_.end : rows_, columns}, qkv + whole,
                   all_.width(), qkv_.data() + part, one_.width());
    });
  }
  void load_result(const T* x, float* to) const {
    load_columns({0, rows_, one_.out_width()}, x + all_.result(task_.batch, first_head_),
                 all_.out_width(), to, one_.out_width());
  }

  const Context& context_;
  AttentionSizes all_;
  AttentionTask task_;
  std::int64_t first_head_;
  AttentionSizes one_;
  std::int64_t rows_;
  Workspace<float> qkv_, out_;
};

}  // namespace penstock::tensor::cpu
