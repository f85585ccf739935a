// The losses of one call: recorded where the last stage is, then averaged over replicas and told to
// the whole pipe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "model/loss.h"
#include "tensor/context.h"

namespace penstock::engine {

class LossTable {
 public:
  // Forgets everything; makes room for so many micro batches.
  void reset(int micro_batches);
  // What the loss function gave for a micro batch of this replica. Does not wait for a device:
  // average() reads what is there. Throws InvalidArgument for extras that are no scalars, have no
  // name, or are not named as those of earlier micro batches.
  void record(int micro_batch, const model::LossResult& result);

  // Where the last stage is, of losses of the context: averages by the weights, in this replica and
  // over `replicas`, whose weights sum to total_weight. Collective over them. Throws
  // InvalidArgument when they have unlike extras.
  void average(const tensor::Context& context, std::span<const double> weights, double total_weight,
               comm::Communicator& replicas);
  // Gives all ranks of a pipe what the one with the last stage has. Collective over the pipe.
  void broadcast(const tensor::Context& context, comm::Communicator& pipe, int root);

  double mean() const { return mean_; }                        // over micro batches and replicas
  double replica_mean() const { return replica_mean_; }        // over this replica's micro batches
  const std::vector<double>& micro() const { return micro_; }  // by micro batch
  // By name: the mean, and the values by micro batch of this replica.
  std::map<std::string, double> extras() const;
  std::map<std::string, std::vector<double>> micro_extras() const;

 private:
  // Losses that a device may have still to compute, and where their values belong.
  struct Place {
    bool extra = false;
    std::size_t index = 0;  // into micro_, or into extra_values_
  };
  void put(const tensor::Tensor& value, bool extra, std::size_t index);
  void read_all(const tensor::Context& context);
  std::string joined_names() const;
  std::span<double> extra(std::size_t i) {
    return std::span(extra_values_).subspan(i * micro_.size(), micro_.size());
  }

  std::vector<tensor::Tensor> unread_;
  std::vector<Place> places_;  // of these
  double mean_ = 0.0, replica_mean_ = 0.0;
  std::vector<double> micro_;
  bool named_ = false;                // a micro batch was recorded, so the names are known
  std::vector<std::string> names_;    // of the extras, sorted
  std::vector<double> extra_means_;   // by name
  std::vector<double> extra_values_;  // by name, then by micro batch
};

}  // namespace penstock::engine
