#include <cmath>

#include <gtest/gtest.h>

#include "model/losses/cross_entropy_loss.h"
#include "model/losses/mse_loss.h"
#include "tensor/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using tensor::Tensor;
using testing::make;
using testing::message;

Context cpu() {
  return Context(tensor::make_cpu_allocator());
}

TEST(MseLoss, IsTheMeanOverAllElements) {
  Context context = cpu();
  const std::vector outputs{make<float>(context, {2, 2}, {1, 2, 3, 4})};
  const std::vector labels{make<float>(context, {2, 2}, {1, 0, 3, 1})};
  const LossResult result = MseLoss().forward(context, outputs, labels);
  EXPECT_EQ(result.loss.shape(), tensor::Shape{});
  EXPECT_FLOAT_EQ(result.loss.data<float>()[0], (4.0f + 9.0f) / 4.0f);
  EXPECT_TRUE(result.extras.empty());
  EXPECT_EQ(MseLoss().weight(labels), 2.0);
}

TEST(MseLoss, CastsLabelsAndGivesTheGradientOfTheMean) {
  Context context = cpu();
  tensor::Tape tape;
  context.tape = &tape;
  const std::vector outputs{tape.input(make<double>(context, {2, 1}, {1, 5}), true)};
  const std::vector labels{make<float>(context, {2, 1}, {0, 2})};
  const Tensor loss = MseLoss().forward(context, outputs, labels).loss;
  tape.seed(loss, make<double>(context, {}, {0.5}));
  tape.backward(context);
  const Tensor gradient = tape.take_input_grad(0);
  EXPECT_DOUBLE_EQ(gradient.data<double>()[0], 0.5 * 2.0 * 1.0 / 2.0);
  EXPECT_DOUBLE_EQ(gradient.data<double>()[1], 0.5 * 2.0 * 3.0 / 2.0);
}

TEST(Losses, RefuseOtherNumbersOfTensors) {
  Context context = cpu();
  const std::vector one{make<float>(context, {1, 1}, {1})};
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { MseLoss().forward(context, one, {}); }),
            "[mse_loss labels] expected 1 input, got 0");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { CrossEntropyLoss().forward(context, {}, one); }),
            "[cross_entropy_loss outputs] expected 1 input, got 0");
  EXPECT_THROW(MseLoss().weight({}), tensor::InvalidArgument);
  EXPECT_THROW(CrossEntropyLoss().weight({}), tensor::InvalidArgument);
}

// Two rows of two tokens over three classes; the last token counts for nothing.
class CrossEntropy : public ::testing::Test {
 protected:
  Context context_ = cpu();
  std::vector<Tensor> logits_{
      make<double>(context_, {2, 2, 3}, {1, 2, 3, 0, 0, 0, -1, 4, 0, 9, 9, 9})};
  std::vector<Tensor> labels_{make<std::int32_t>(context_, {2, 2}, {2, 0, 1, -100})};
};

TEST_F(CrossEntropy, IsTheMeanOverValidTokens) {
  const double first = std::log(1 + std::exp(-1.0) + std::exp(-2.0));
  const double second = std::log(3.0);
  const double third = std::log(1 + std::exp(-5.0) + std::exp(-4.0));
  const Tensor loss = CrossEntropyLoss().forward(context_, logits_, labels_).loss;
  EXPECT_NEAR(loss.item(), (first + second + third) / 3.0, 1e-14);
}

TEST_F(CrossEntropy, WeighsByTokensRowsOrOne) {
  EXPECT_EQ(CrossEntropyLoss().weight(labels_), 3.0);
  EXPECT_EQ(CrossEntropyLoss(TokenWeight::kRows).weight(labels_), 2.0);
  EXPECT_EQ(CrossEntropyLoss(TokenWeight::kOne).weight(labels_), 1.0);
  EXPECT_EQ(CrossEntropyLoss(TokenWeight::kTokens, 2).weight(labels_), 3.0);
}

TEST_F(CrossEntropy, IsZeroWithoutValidTokens) {
  const std::vector none{make<std::int32_t>(context_, {2, 2}, {7, 7, 7, 7})};
  const CrossEntropyLoss loss(TokenWeight::kTokens, 7);
  EXPECT_EQ(loss.weight(none), 0.0);
  EXPECT_EQ(loss.forward(context_, logits_, none).loss.item(), 0.0);
}

// Splitting a batch and joining by weight gives the loss of the whole batch.
TEST_F(CrossEntropy, WeightedMeanOverMicroBatchesIsTheMeanOverTheBatch) {
  const CrossEntropyLoss loss;
  double sum = 0;
  double weights = 0;
  for (const std::int64_t row : {0, 1}) {
    const std::vector logits{logits_[0].rows(row, row + 1)};
    const std::vector labels{labels_[0].rows(row, row + 1)};
    sum += loss.weight(labels) * loss.forward(context_, logits, labels).loss.item();
    weights += loss.weight(labels);
  }
  EXPECT_NEAR(sum / weights, loss.forward(context_, logits_, labels_).loss.item(), 1e-14);
}

}  // namespace
}  // namespace penstock::model
