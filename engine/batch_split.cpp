#include "engine/batch_split.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "tensor/error.h"
#include "tensor/ops/shape.h"

namespace penstock::engine {

namespace {

using model::MicroBatch;
using tensor::InvalidArgument;
using tensor::Tensor;

// A layer, or the loss, that reads an input by name.
struct NamedUse {
  std::string reader;
  std::string name;
  bool here = false;  // on this rank
};

bool owns_layer(const RankState& rank, std::int64_t layer) {
  return std::ranges::any_of(rank.stage_ids(), [&](schedule::StageId id) {
    const auto stage = static_cast<std::size_t>(id.value);
    return rank.bounds[stage] <= layer && layer < rank.bounds[stage + 1];
  });
}

std::vector<NamedUse> named_uses(const RankState& rank) {
  std::vector<NamedUse> uses;
  const model::Module& module = rank.module;
  for (std::int64_t i = 0; i < std::ssize(module.layers); ++i) {
    for (const std::string& name : module.layers[static_cast<std::size_t>(i)].named_inputs) {
      uses.push_back({model::layer_label(module, i), name, owns_layer(rank, i)});
    }
  }
  if (module.loss == nullptr) return uses;
  const bool here = rank.owns_last_stage() && rank.batch.eval.compute_loss;
  for (std::string& name : module.loss->named_inputs()) {
    uses.push_back({"the loss", std::move(name), here});
  }
  return uses;
}

std::string quoted(const std::string& name) {
  return "\"" + name + "\"";
}

std::string numbered(const char* what, std::size_t i) {
  return std::string(what) + " " + std::to_string(i);
}

void check_host(const std::string& what, const Tensor& tensor) {
  if (tensor.defined() && !tensor.is_meta()) return;
  throw InvalidArgument("expected " + what + " to lie in host memory, got " + tensor.to_string());
}

Tensor copy_of(const tensor::Context& context, const Tensor& tensor) {
  return Tensor::from_bytes(context, tensor.shape(), tensor.dtype(),
                            std::span(tensor.raw(), tensor.nbytes()));
}

class Splitter {
 public:
  explicit Splitter(RankState& rank)
      : rank_(rank), count_(static_cast<std::size_t>(rank.batch.micro_batches)) {
    for (NamedUse& use : named_uses(rank)) {
      if (use.here) here_.insert(use.name);
      known_.insert(std::move(use.name));
    }
    split_.micro_batches.resize(count_);
  }

  SplitBatch split(const WholeBatch& batch) {
    list_parts(batch);
    if (!batch.inputs.empty() || !batch.targets.empty() || !batch.named.empty()) {
      split_.form = SplitBatch::Form::kWhole;
    }
    for (const Part& part : parts_) count_samples(part);
    if (samples_) split_.rows = even_sizes();
    for (const Part& part : parts_) {
      std::vector<Tensor> tensors = cut(part);
      for (std::size_t m = 0; m < count_; ++m) part.put(split_.micro_batches[m], tensors[m]);
    }
    return std::move(split_);
  }

  SplitBatch split(const std::vector<MicroBatch>& given) {
    if (given.empty()) {
      if (rank_.owns_first_stage()) throw_no_inputs();
      return std::move(split_);
    }
    if (given.size() != count_) {
      throw InvalidArgument("got " + std::to_string(given.size()) +
                            " micro batches, expected as many as the call has, " +
                            std::to_string(count_));
    }
    split_.form = SplitBatch::Form::kMicroBatches;
    for (std::size_t m = 0; m < count_; ++m) {
      check_alike(given, m);
      take(given[m], m);
    }
    return std::move(split_);
  }

 private:
  // A tensor of the whole batch that this rank needs.
  struct Part {
    std::string what;
    const BatchTensor* given = nullptr;
    std::function<void(MicroBatch&, Tensor)> put;
  };

  [[noreturn]] static void throw_no_inputs() {
    throw InvalidArgument("got no inputs; expected one tensor or more where the first stage is");
  }

  // Whether a layer of this rank reads it; throws for a name that nothing reads anywhere.
  bool needs(const std::string& name) const {
    if (here_.contains(name)) return true;
    if (known_.contains(name)) return false;
    std::string read;
    for (const std::string& other : known_) read += (read.empty() ? "" : ", ") + quoted(other);
    throw InvalidArgument(
        "no layer reads the named input " + quoted(name) +
        "; expected one of those that layers declare: " + (read.empty() ? "none" : read));
  }

  void list_parts(const WholeBatch& batch) {
    if (rank_.owns_first_stage()) {
      if (batch.inputs.empty()) throw_no_inputs();
      for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
        parts_.push_back({numbered("input", i), &batch.inputs[i], [](MicroBatch& to, Tensor part) {
                            to.inputs.push_back(std::move(part));
                          }});
      }
    }
    if (rank_.owns_last_stage()) {
      for (std::size_t i = 0; i < batch.targets.size(); ++i) {
        split_.label_axes.push_back(batch.targets[i].cut.axis);
        parts_.push_back(
            {numbered("target", i), &batch.targets[i],
             [](MicroBatch& to, Tensor part) { to.labels.push_back(std::move(part)); }});
      }
    }
    for (const auto& [name, tensor] : batch.named) {
      if (!needs(name)) continue;
      parts_.push_back(
          {"the named input " + quoted(name), &tensor,
           [&name](MicroBatch& to, Tensor part) { to.named[name] = std::move(part); }});
    }
  }

  void count_samples(const Part& part) {
    const Tensor& tensor = part.given->tensor;
    check_host(part.what, tensor);
    const BatchCut cut = part.given->cut;
    if (cut.replicate) return;
    const int rank = tensor.shape().rank();
    if (cut.axis < -rank || cut.axis >= rank) {
      throw InvalidArgument(part.what + " is to be cut along axis " + std::to_string(cut.axis) +
                            " and is " + tensor.to_string() +
                            "; name another axis with along(), or give it to all with kReplicate");
    }
    const std::int64_t samples = tensor.shape().dim(cut.axis);
    if (samples < static_cast<std::int64_t>(count_)) {
      throw InvalidArgument(part.what + " has " + std::to_string(samples) + " samples along axis " +
                            std::to_string(cut.axis) + "; expected at least one for each of " +
                            std::to_string(count_) + " micro batches");
    }
    if (samples_.value_or(samples) != samples) {
      throw InvalidArgument(part.what + " has " + std::to_string(samples) + " samples along axis " +
                            std::to_string(cut.axis) + ", and " + counted_by_ + " has " +
                            std::to_string(*samples_) + "; expected as many, or kReplicate");
    }
    if (!samples_) counted_by_ = part.what;
    samples_ = samples;
  }

  std::vector<std::int64_t> even_sizes() const {
    const auto count = static_cast<std::int64_t>(count_);
    std::vector<std::int64_t> sizes(count_, *samples_ / count);
    for (std::int64_t m = 0; m < *samples_ % count; ++m) ++sizes[static_cast<std::size_t>(m)];
    return sizes;
  }

  std::vector<Tensor> cut(const Part& part) {
    const auto& [tensor, cut] = *part.given;
    if (cut.replicate) return std::vector<Tensor>(count_, copy_of(rank_.host, tensor));
    return tensor::split(rank_.host, tensor, split_.rows, cut.axis);
  }

  // What the rank needs of a micro batch must be as many tensors as of the first one.
  void check_alike(const std::vector<MicroBatch>& given, std::size_t m) const {
    const auto check = [m](const char* what, std::size_t got, std::size_t first) {
      if (got == first) return;
      throw InvalidArgument(numbered("micro batch", m) + " has " + std::to_string(got) + " " +
                            what + " and micro batch 0 has " + std::to_string(first) +
                            "; expected as many in each");
    };
    if (rank_.owns_first_stage()) check("inputs", given[m].inputs.size(), given[0].inputs.size());
    if (rank_.owns_last_stage()) check("labels", given[m].labels.size(), given[0].labels.size());
    check("named inputs", given[m].named.size(), given[0].named.size());
  }

  void take(const MicroBatch& given, std::size_t m) {
    samples_.reset();
    const std::string where = " of " + numbered("micro batch", m);
    MicroBatch& to = split_.micro_batches[m];
    if (rank_.owns_first_stage()) {
      if (given.inputs.empty()) throw_no_inputs();
      take_rows("input", where, given.inputs, to.inputs);
    }
    if (rank_.owns_last_stage()) take_rows("label", where, given.labels, to.labels);
    for (const auto& [name, tensor] : given.named) {
      if (!needs(name)) continue;
      check_host("the named input " + quoted(name) + where, tensor);
      to.named[name] = copy_of(rank_.host, tensor);
    }
    if (samples_) split_.rows.push_back(*samples_);
  }

  void take_rows(const char* what, const std::string& where, const std::vector<Tensor>& given,
                 std::vector<Tensor>& to) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const std::string name = numbered(what, i) + where;
      check_host(name, given[i]);
      if (given[i].shape().rank() == 0) {
        throw InvalidArgument(name + " is a scalar; expected a first axis that counts samples");
      }
      const std::int64_t samples = given[i].dim(0);
      if (samples_.value_or(samples) != samples) {
        throw InvalidArgument(name + " has " + std::to_string(samples) + " rows, and " +
                              counted_by_ + " has " + std::to_string(*samples_) +
                              "; expected as many");
      }
      if (!samples_) counted_by_ = name;
      samples_ = samples;
      to.push_back(copy_of(rank_.host, given[i]));
    }
  }

  RankState& rank_;
  std::size_t count_;
  std::set<std::string> known_, here_;  // names that are read in the model, on this rank
  std::vector<Part> parts_;
  // Of the whole batch, or of the micro batch that is looked at; and which tensor said so first.
  std::optional<std::int64_t> samples_;
  std::string counted_by_;
  SplitBatch split_;
};

}  // namespace

SplitBatch split_batch(RankState& rank, const GivenBatch& given) {
  if (rank.context.model.rank != 0) return {};  // gets what rank 0 of its model group has
  return std::visit([&rank](const auto* batch) { return Splitter(rank).split(*batch); }, given);
}

void require_named_inputs(const RankState& rank) {
  if (rank.context.model.rank != 0) return;
  const std::vector<MicroBatch>& loaded = rank.batch.loaded;
  for (const NamedUse& use : named_uses(rank)) {
    if (!use.here) continue;
    const auto lacking = std::ranges::find_if(loaded, [&use](const MicroBatch& micro_batch) {
      return !micro_batch.named.contains(use.name);
    });
    // A rank that asks a source and got nothing is at the end of the data.
    if (lacking == loaded.end() && (!loaded.empty() || rank.loads_data())) continue;
    throw InvalidArgument(
        use.reader + " reads the input named " + quoted(use.name) + ", and " +
        numbered("micro batch", static_cast<std::size_t>(lacking - loaded.begin())) +
        " has none; give it to step() or eval_step() on every rank whose layers "
        "read it");
  }
}

}  // namespace penstock::engine
