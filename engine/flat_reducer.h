// FlatReducer: sums pieces of gradients over replicas, whole or each replica its share (ZeRO), and
// gathers the weights that the shares updated.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/world.h"
#include "engine/config.h"
#include "engine/share.h"
#include "model/stage.h"
#include "tensor/context.h"

namespace penstock::engine {

// Belongs to one rank. A piece is one of Stage::flat_weights().
//
// The loss gradient is scaled at its source so that a sum over replicas is their mean. With sums in
// 16 bits gradient_predivide_factor moves them to another range: they are multiplied before, and
// what gradients() gives has to be multiplied by factor().
class FlatReducer {
 public:
  // Communicators are borrowed.
  FlatReducer(const Config& config, comm::Communicator& data, comm::Communicator& model);

  // Sums the gradients of a piece, of which all slots are filled, over the model group where they
  // are partial, and starts to sum them over replicas. With ZeRO stage 2 it waits, and only this
  // rank's share of the sum stays: added to what earlier calls since clear() left.
  void start(tensor::Context& context, model::Stage& stage, const model::FlatWeights& weights);
  // Takes the gradients of a piece as they are, where start() was left out. Not with ZeRO stage 2.
  void take(const model::Stage& stage, const model::FlatWeights& weights);
  // Waits for all that was started.
  void finish(tensor::Context& context);
  // The summed gradients of owned_range(weights, share()), in one dimension; undefined before
  // start().
  tensor::Tensor gradients(const model::FlatWeights& weights) const;
  // What these are to be multiplied with, beside what clips and unscales.
  double factor() const { return factor_; }
  const Share& share() const { return share_; }
  // Bytes that were given to sums over replicas and over the model group.
  std::int64_t reduced_bytes() const { return reduced_bytes_; }
  // Whether a share's gradients stay while the stage's are released.
  bool keeps_shares() const { return keeps_shares_; }

  // After an update: every replica gets the weights of all shares.
  void gather_weights(std::span<const std::unique_ptr<model::Stage>> stages);
  // Forgets the gradients.
  void clear();

 private:
  struct Pending {
    comm::Work work;
    tensor::Tensor received;  // in the dtype of communication; undefined: that of the target
    tensor::Tensor target;
  };

  void reduce(tensor::Context& context, const tensor::Tensor& all, const tensor::Tensor& target);
  void add_share(tensor::Context& context, const model::FlatWeights& weights,
                 const tensor::Tensor& all);

  comm::Communicator& data_;
  comm::Communicator& model_;
  Share share_;
  bool keeps_shares_;
  std::optional<tensor::DType> dtype_;  // of communication
  double before_ = 1.0;                 // gradients are multiplied with it before they are summed
  double factor_ = 1.0;
  std::int64_t reduced_bytes_ = 0;
  std::vector<Pending> pending_;
  // Summed gradients, by piece; with stage 2 of memory of their own.
  std::map<const model::FlatWeights*, tensor::Tensor> gradients_;
  std::map<const model::FlatWeights*, bool> has_share_;
};

}  // namespace penstock::engine
