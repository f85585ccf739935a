#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kAdams = "Adam|AdamW";
constexpr std::string_view kMoments = "Adam|AdamW|Lamb";
constexpr std::string_view kHaveBetas = "Adam|AdamW|Lamb|Lion";

// torch's and DeepSpeed's betas: [beta1, beta2], each in [0, 1).
constexpr ValueRule kBetas = {.low = 0, .high = 1, .high_open = true, .list_size = 2};

constexpr KeyRow kRows[] = {
    supported(
        "optimizer.type", kString, kRequired,
        one_of("SGD|Adam|AdamW|Lamb|Lion",
               "Adagrad|Adadelta|Adamax|NAdam|RAdam|RMSprop|Rprop|ASGD|LBFGS|Muon|OneBitAdam|"
               "ZeroOneAdam|OneBitLamb|MuAdam|MuAdamW|MuSGD|CPUAdam"),
        "The optimizer. Adam decouples its weight decay unless adam_w_mode is false; AdamW "
        "always does. Lamb scales the step of each parameter by the ratio of its norm to that "
        "of the step; Lion moves by the sign of a mean gradient."),
    supported("optimizer.params.lr", kNumber, "0.001", at_least(0),
              "Learning rate; a scheduler replaces it (WarmupLR and WarmupCosineLR start from "
              "it)."),
    supported("optimizer.params.weight_decay", kNumber, "0.0", at_least(0),
              "Weight decay: decoupled (the weight shrinks by lr × decay) or, for SGD and Adam "
              "with adam_w_mode false, added to the gradient; Lamb adds it to the step before the "
              "ratio is taken."),
    supported("optimizer.params.momentum", kNumber, "0.0", at_least(0),
              "buffer = momentum × buffer + (1 − dampening) × gradient; the first buffer is the "
              "gradient.",
              "SGD"),
    supported("optimizer.params.dampening", kNumber, "0.0", any(), "See momentum.", "SGD"),
    supported("optimizer.params.nesterov", kBool, "false", any(),
              "Step by gradient + momentum × buffer; needs a momentum and no dampening.", "SGD"),
    supported("optimizer.params.betas", kNumberList, "[0.9, 0.999]", kBetas,
              "Decay rates of the first and second moment.", kMoments),
    supported("optimizer.params.betas", kNumberList, "[0.9, 0.99]", kBetas,
              "How much of the mean gradient the step keeps, and how much the mean itself keeps.",
              "Lion"),
    supported("optimizer.params.eps", kNumber, "1e-08", at_least(0),
              "Added to the root of the second moment.", kMoments),
    supported("optimizer.params.bias_correction", kBool, "true", any(),
              "Correct the moments for their start at zero.", kMoments),
    supported("optimizer.params.max_coeff", kNumber, "10.0", at_least(0),
              "Upper limit of the ratio of norms.", "Lamb"),
    supported("optimizer.params.min_coeff", kNumber, "0.01", at_least(0),
              "Lower limit of the ratio of norms.", "Lamb"),
    off_only("optimizer.params.eps_inside_sqrt", kBool, "false", any(),
             "eps is added to the root, as in the original paper", "Lamb"),
    supported("optimizer.params.adam_w_mode", kBool, "true", any(),
              "Decoupled weight decay; false is only for Adam.", kAdams),
    hint("optimizer.params.torch_adam", kBool, "false", any(), "there is one implementation",
         kAdams),
    off_only("optimizer.params.amsgrad", kBool, "false", any(), "no optimizer here has it",
             kMoments),
    off_only("optimizer.params.maximize", kBool, "false", any(), "the loss is minimised"),
    hint("optimizer.params.fused", kBool, "", any(), "there is one implementation"),
    hint("optimizer.params.foreach", kBool, "", any(), "there is one implementation"),
    off_only("optimizer.params.max_grad_norm", kNumber, "", any(),
             "DeepSpeed refuses it too; use gradient_clipping"),
    supported("optimizer.groups", kObjectList, "[]", any(),
              "Parameter groups with settings of their own. A parameter belongs to the first group "
              "that matches its name, otherwise to a last group with optimizer.params alone. Lists "
              "in scheduler.params have one value per group in this order, the last group "
              "included. Penstock only."),
    supported("optimizer.groups[].match", kRegex, kRequired, any(),
              "Regular expression, found anywhere in the parameter's name."),
    supported("optimizer.groups[].lr", kNumber, "", at_least(0), "As in optimizer.params."),
    supported("optimizer.groups[].weight_decay", kNumber, "", at_least(0),
              "As in optimizer.params."),
    supported("optimizer.groups[].momentum", kNumber, "", at_least(0), "As in optimizer.params.",
              "SGD"),
    supported("optimizer.groups[].dampening", kNumber, "", any(), "As in optimizer.params.", "SGD"),
    supported("optimizer.groups[].betas", kNumberList, "", kBetas, "As in optimizer.params.",
              kHaveBetas),
    supported("optimizer.groups[].eps", kNumber, "", at_least(0), "As in optimizer.params.",
              kMoments),
    off_only("optimizer.legacy_fusion", kBool, "false", any(), "there is one implementation"),
};

}  // namespace

KeyChapter optimizer_keys() {
  return {"Optimizer",
          "Without an `optimizer` section the engine evaluates only. What a group leaves out, it "
          "takes from `optimizer.params`.",
          kRows};
}

}  // namespace penstock::engine
