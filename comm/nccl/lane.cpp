#include "comm/nccl/lane.h"

#include <cstdio>
#include <thread>
#include <utility>

#include "comm/error.h"
#include "comm/nccl/check.h"
#include "comm/pause.h"

namespace penstock::comm::nccl {

namespace {

using Clock = std::chrono::steady_clock;

// Moves a lane on as long as there is something to do.
class LaneDriver final : public Operation {
 public:
  explicit LaneDriver(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}

  bool advance() override { return lane_->advance(); }
  std::string describe() const override { return lane_->describe(); }
  bool awaits_device() const override { return true; }

 private:
  std::shared_ptr<Lane> lane_;  // shared with its communicator, which may go before
};

}  // namespace

Lane::Lane(World& world, int device, const Members& members)
    : world_(world),
      text_(members.text),
      stream_(std::make_shared<tensor::cuda::SideStream>(device)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (members.most_blocks > 0) config.maxCTAs = members.most_blocks;
  check(ncclCommInitRankConfig(&comm_, members.size, members.id, members.rank, &config),
        "ncclCommInitRankConfig");
  world_.watch(*this);
}

Lane::~Lane() {
  world_.unwatch(*this);
  world_aborted();
  if (flights_.empty()) return;
  // NCCL's kernels see that they are aborted, but not at once, and until then they use the tensors.
  constexpr std::chrono::seconds kPatience{10};
  const auto start = Clock::now();
  while (!stream_->idle()) {
    if (Clock::now() - start > kPatience) {  // what the device may still touch is given to nobody
      new std::deque<Flight>(std::move(flights_));
      return;
    }
    std::this_thread::yield();
  }
}

void Lane::world_aborted() noexcept {
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

std::shared_ptr<Ticket> Lane::push(Call call) {
  auto ticket = std::make_shared<Ticket>();
  ticket->armed_ = call.armed;
  ticket->keep_ = std::move(call.keep);
  flights_.push_back({std::move(call), ticket});
  std::shared_ptr<Operation> driver = driver_.lock();
  if (driver == nullptr) {
    driver = std::make_shared<LaneDriver>(shared_from_this());
    driver_ = driver;
    world_.add(driver);
  }
  Work(world_, std::move(driver)).advance();
  return ticket;
}

void Lane::wait() {
  Work(world_, std::make_shared<LaneDriver>(shared_from_this())).wait();
}

void Lane::close() {
  wait();
  check(ncclCommFinalize(comm_), "ncclCommFinalize");
  wait();
  world_.unwatch(*this);
  check(ncclCommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

bool Lane::settled() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  check(state, text_.c_str());
  return state != ncclInProgress;
}

bool Lane::advance() {
  if (comm_ == nullptr) return true;
  if (!settled()) {
    watch();
    return false;
  }
  connected_ = true;
  if (calling_) end_call();
  while (queued_ < flights_.size()) {
    begin_call(flights_[queued_]);
    if (!settled()) break;
    end_call();
  }
  while (queued_ > 0 && flights_.front().ticket->fence_->reached()) {
    flights_.pop_front();
    --queued_;
    since_.reset();
  }
  watch();
  return flights_.empty();
}

void Lane::begin_call(const Flight& flight) {
  if (flight.call.before != nullptr) stream_->wait_for(*flight.call.before);
  calling_ = true;
  check(ncclGroupStart(), "ncclGroupStart");
  const ncclResult_t result =
      flight.call.start(comm_, static_cast<cudaStream_t>(stream_->native()));
  const ncclResult_t end = ncclGroupEnd();  // also after an error: the thread is left as it was
  check(result, flight.call.text.c_str());
  check(end, flight.call.text.c_str());
}

void Lane::end_call() {
  calling_ = false;
  flights_[queued_].ticket->fence_ = stream_->fence();
  ++queued_;
}

void Lane::watch() {
  if (flights_.empty()) return;
  const Flight& front = flights_.front();
  if (!since_.has_value()) {
    const auto& before = front.call.before;
    if (front.ticket->armed_ && (before == nullptr || before->reached())) since_ = Clock::now();
    return;
  }
  if (Clock::now() - *since_ < time_out({.timeout_seconds = world_.timeout_seconds()})) return;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", world_.timeout_seconds());
  throw TimedOut("[nccl] rank " + std::to_string(world_.rank()) + " waited " + seconds +
                 " s for its device to end " + front.call.text +
                 "; see whether the other ranks of it failed or are slow, or raise the time-out");
}

std::string Lane::describe() const {
  if (!connected_) return "NCCL to connect " + text_;
  return flights_.empty() ? "NCCL to close " + text_
                          : "the device to end " + flights_.front().call.text;
}

}  // namespace penstock::comm::nccl
