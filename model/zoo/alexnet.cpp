#include "model/zoo/alexnet.h"

#include <memory>
#include <string>
#include <utility>

#include "model/layers/activation.h"
#include "model/layers/image.h"
#include "model/layers/linear.h"
#include "model/losses/cross_entropy_loss.h"
#include "tensor/error.h"

namespace penstock::model {

namespace {

class Builder {
 public:
  // A convolution and its ReLU.
  void conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
            const Conv2dLayerOptions& options) {
    module_.layers.push_back(layer<Conv2d>("Conv2d", in, out, kernel, options));
    module_.layers.push_back(layer<Relu>("Relu"));
  }
  void pool() {
    module_.layers.push_back(layer<MaxPool2d>("MaxPool2d", tensor::MaxPool2dOptions{.kernel = 2}));
  }
  Module finish(std::int64_t features, std::int64_t classes) {
    module_.layers.push_back(layer<Flatten>("Flatten"));
    module_.layers.push_back(layer<Linear>("Linear", features, classes));
    module_.loss = std::make_shared<CrossEntropyLoss>();
    return std::move(module_);
  }

 private:
  Module module_;
};

}  // namespace

Module make_alexnet(const AlexNetConfig& config) {
  if (config.num_classes < 1) {
    throw tensor::InvalidArgument("[alexnet] expected num_classes >= 1, got " +
                                  std::to_string(config.num_classes));
  }
  Builder net;                                       // sizes of an image after each: 32
  net.conv(3, 64, 11, {.stride = 4, .padding = 5});  // 8
  net.pool();                                        // 4
  net.conv(64, 192, 5, {.padding = 2});
  net.pool();  // 2
  net.conv(192, 384, 3, {.padding = 1});
  net.conv(384, 256, 3, {.padding = 1});
  net.conv(256, 256, 3, {.padding = 1});
  net.pool();  // 1
  return net.finish(256, config.num_classes);
}

}  // namespace penstock::model
