// Training without pipeline, engine or optimizer code: what every grid must agree with.
#pragma once

#include "model/stage.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {

// One process that holds the whole model, and runs whole batches forward and backward at once.
class Reference {
 public:
  Reference(const model::Module& module, const Weights& weights);

  // Adds scale × the gradient of the batch's loss to the gradients, and returns the loss.
  double accumulate(const model::MicroBatch& batch, double scale = 1.0);
  void clear() { gradients_.clear(); }

  // Of each logical weight, summed over its uses.
  Weights gradients() const;
  // L2 norm over all weights, each counted once.
  double norm() const;
  // weight −= lr · factor · gradient
  void sgd(double lr, double factor = 1.0);
  // AdamW with bias correction, computed in double; `factor` scales the gradients first.
  struct AdamW {
    double lr, beta1, beta2, eps, weight_decay;
  };
  void adamw(const AdamW& options, double factor);
  Weights weights() const;

 private:
  using Doubles = std::map<std::string, std::vector<double>>;
  void store(const std::string& name);  // the weight, rounded, into the model

  model::Module module_;
  model::Context context_;
  model::Stage stage_;
  Doubles weights_, gradients_, moment1_, moment2_;
  int updates_ = 0;
};

// The next rows of a source, which must have them.
model::MicroBatch take(model::DataSource& source, std::int64_t rows);

}  // namespace penstock::testing
