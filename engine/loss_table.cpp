#include "engine/loss_table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/hash.h"
#include "tensor/error.h"
#include "tensor/transfer.h"

namespace penstock::engine {

namespace {

using tensor::Tensor;

// A weight of 0 leaves a micro batch out, whatever its loss is.
double weighted_sum(std::span<const double> weights, std::span<const double> values) {
  double sum = 0.0;
  for (std::size_t m = 0; m < values.size(); ++m) {
    if (weights[m] > 0.0) sum += weights[m] * values[m];
  }
  return sum;
}

double ratio(double sum, double weight) {
  return weight > 0.0 ? sum / weight : 0.0;
}

std::vector<std::string> sorted_names(const model::LossResult& result) {
  std::vector<std::string> names;
  for (const auto& [name, value] : result.extras) {
    if (!value.defined() || value.numel() != 1) {
      throw tensor::InvalidArgument("[loss] expected the extra loss \"" + name +
                                    "\" to be a scalar, got " + value.to_string());
    }
    names.push_back(name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    throw tensor::InvalidArgument("[loss] there are two extra losses \"" + *twice +
                                  "\"; expected names that differ");
  }
  for (const std::string& name : names) {
    if (!name.empty() && name.find('\n') == std::string::npos) continue;
    throw tensor::InvalidArgument("[loss] an extra loss has the name \"" + name +
                                  "\"; expected a line of text");
  }
  return names;
}

std::string quoted(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

void broadcast_values(const tensor::Context& context, comm::Communicator& pipe, int root,
                      std::span<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor sent = Tensor::from<double>(context, {count}, values);
  pipe.broadcast(sent, root).wait();
  std::ranges::copy(sent.span<double>(), values.begin());
}

void broadcast_text(const tensor::Context& context, comm::Communicator& pipe, int root,
                    std::string& text) {
  const auto count = static_cast<std::int64_t>(text.size());
  const Tensor sent = Tensor::empty(context, {count}, tensor::DType::kU8);
  std::memcpy(sent.raw(), text.data(), text.size());
  pipe.broadcast(sent, root).wait();
  std::memcpy(text.data(), sent.raw(), text.size());
}

}  // namespace

void LossTable::reset(int micro_batches) {
  *this = {};
  micro_.assign(static_cast<std::size_t>(micro_batches), 0.0);
}

void LossTable::record(int micro_batch, const model::LossResult& result) {
  const auto m = static_cast<std::size_t>(micro_batch);
  put(result.loss, /*extra=*/false, m);
  std::vector<std::string> names = sorted_names(result);
  if (!named_) {
    named_ = true;
    names_ = std::move(names);
    extra_means_.assign(names_.size(), 0.0);
    extra_values_.assign(names_.size() * micro_.size(), 0.0);
  } else if (names != names_) {
    throw tensor::InvalidArgument("[loss] the extra losses of micro batch " +
                                  std::to_string(micro_batch) + " are " + quoted(names) +
                                  ", those of an earlier one " + quoted(names_) +
                                  "; expected the same names for each");
  }
  for (const auto& [name, value] : result.extras) {
    const auto place = std::ranges::lower_bound(names_, name) - names_.begin();
    put(value, /*extra=*/true, static_cast<std::size_t>(place) * micro_.size() + m);
  }
}

void LossTable::put(const tensor::Tensor& value, bool extra, std::size_t index) {
  if (value.device() != tensor::kCpuDevice) {
    unread_.push_back(value.detach());
    places_.push_back({extra, index});
    return;
  }
  (extra ? extra_values_ : micro_)[index] = value.item();
}

void LossTable::read_all(const tensor::Context& context) {
  if (unread_.empty()) return;
  const std::vector<double> values = tensor::read_scalars(context, unread_);
  for (std::size_t i = 0; i < values.size(); ++i) {
    (places_[i].extra ? extra_values_ : micro_)[places_[i].index] = values[i];
  }
  unread_.clear();
  places_.clear();
}

void LossTable::average(const tensor::Context& context, std::span<const double> weights,
                        double total_weight, comm::Communicator& replicas) {
  read_all(context);
  double own_weight = 0.0;
  for (const double weight : weights) own_weight += weight;
  // The replicas' names are compared by a number that a double holds, summed over all of them; who
  // sees no difference hears of it from one who does.
  const auto names_number = static_cast<double>(hash_with(kEmptyHash, joined_names()) >> 32);
  std::array<double, 2> sums = {weighted_sum(weights, micro_), names_number};
  replica_mean_ = ratio(sums[0], own_weight);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    extra_means_[i] = weighted_sum(weights, extra(i));
  }
  if (replicas.size() > 1) {
    replicas.all_reduce_wait(sums, comm::ReduceOp::kSum);
    if (sums[1] != names_number * replicas.size()) {
      throw tensor::InvalidArgument("[loss] the extra losses of this replica are " +
                                    quoted(names_) +
                                    ", another replica has others; expected the "
                                    "same names on all");
    }
    if (!names_.empty()) replicas.all_reduce_wait(extra_means_, comm::ReduceOp::kSum);
  }
  mean_ = ratio(sums[0], total_weight);
  for (double& mean : extra_means_) mean = ratio(mean, total_weight);
}

void LossTable::broadcast(const tensor::Context& context, comm::Communicator& pipe, int root) {
  if (pipe.size() == 1) return;
  std::string names = joined_names();
  std::vector<double> values = {mean_, replica_mean_, static_cast<double>(names_.size()),
                                static_cast<double>(names.size())};
  values.insert(values.end(), micro_.begin(), micro_.end());
  broadcast_values(context, pipe, root, values);
  mean_ = values[0];
  replica_mean_ = values[1];
  const auto num_names = static_cast<std::size_t>(values[2]);
  const auto text_size = static_cast<std::size_t>(values[3]);
  micro_.assign(values.begin() + 4, values.end());
  if (num_names == 0) return;

  names.resize(text_size);
  broadcast_text(context, pipe, root, names);
  names_.clear();
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = names.find('\n', begin);
    names_.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  extra_means_.resize(num_names);
  extra_values_.resize(num_names * micro_.size());
  broadcast_values(context, pipe, root, extra_means_);
  broadcast_values(context, pipe, root, extra_values_);
}

std::map<std::string, double> LossTable::extras() const {
  std::map<std::string, double> result;
  for (std::size_t i = 0; i < names_.size(); ++i) result.emplace(names_[i], extra_means_[i]);
  return result;
}

std::map<std::string, std::vector<double>> LossTable::micro_extras() const {
  std::map<std::string, std::vector<double>> result;
  auto values = extra_values_.begin();
  for (const std::string& name : names_) {
    const auto end = values + std::ssize(micro_);
    result.emplace(name, std::vector<double>(values, end));
    values = end;
  }
  return result;
}

// Each with a line's end.
std::string LossTable::joined_names() const {
  std::string text;
  for (const std::string& name : names_) text += name + "\n";
  return text;
}

}  // namespace penstock::engine
