#include "model/data/prefetch_source.h"

#include <string>
#include <utility>

#include "tensor/error.h"

namespace penstock::model {

namespace {

std::size_t checked_depth(int depth) {
  if (depth >= 1) return static_cast<std::size_t>(depth);
  throw tensor::InvalidArgument(
      "[data] expected to read ahead by at least one micro batch, got a depth of " +
      std::to_string(depth));
}

}  // namespace

PrefetchSource::PrefetchSource(std::unique_ptr<DataSource> source, int depth)
    : source_(std::move(source)), depth_(checked_depth(depth)) {
  if (source_ == nullptr) {
    throw tensor::InvalidArgument("[data] expected a source to read ahead of, got none");
  }
  place_ = source_place();
  thread_ = std::thread([this] { run(); });
}

PrefetchSource::~PrefetchSource() {
  {
    const Lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<MicroBatch> PrefetchSource::next(std::int64_t rows) {
  Lock lock(mutex_);
  Fetched result;
  const Request request{place_.position, rows};
  const Request* expected = upcoming();
  if (expected != nullptr && *expected == request) await_upcoming(lock);
  if (!fetched_.empty() && fetched_.front().request == request) {
    result = std::move(fetched_.front());
    fetched_.pop_front();
    changed_.notify_all();
  } else {
    result = read_now(lock, rows);
  }
  lock.unlock();
  place_ = result.after;
  last_end_ = place_.position;
  if (result.error) std::rethrow_exception(std::move(result.error));
  return std::move(result.batch);
}

void PrefetchSource::seek(std::int64_t position) {
  if (position == place_.position) return;
  Lock lock(mutex_);
  const Request* expected = upcoming();
  if (expected != nullptr && expected->position == position) {
    await_upcoming(lock);
    if (!fetched_.empty()) {
      place_ = fetched_.front().before;
      return;
    }
  }
  stop_guessing(lock);
  source_->seek(position);
  place_ = source_place();
}

void PrefetchSource::begin_epoch(std::int64_t epoch) {
  Lock lock(mutex_);
  stop_guessing(lock);
  source_->begin_epoch(epoch);
  place_ = source_place();
  last_end_.reset();
}

void PrefetchSource::set_depth(int depth) {
  {
    const Lock lock(mutex_);
    depth_ = checked_depth(depth);
  }
  changed_.notify_all();
}

// What the caller gets without a read of its own, if it asks for just that.
const PrefetchSource::Request* PrefetchSource::upcoming() const {
  if (!fetched_.empty()) return &fetched_.front().request;
  return guess_ ? &*guess_ : nullptr;
}

// Until it is fetched, or given up because the guess was wrong.
void PrefetchSource::await_upcoming(Lock& lock) {
  changed_.wait(lock, [this] { return !fetched_.empty() || !guess_; });
}

// Afterwards the source is the caller's.
void PrefetchSource::stop_guessing(Lock& lock) {
  guess_.reset();
  changed_.wait(lock, [this] { return !busy_; });
  fetched_.clear();
}

PrefetchSource::Fetched PrefetchSource::read_now(Lock& lock, std::int64_t rows) {
  stop_guessing(lock);
  if (source_->position() != place_.position) source_->seek(place_.position);
  Fetched result = read(rows);
  // A jump back begins the same pattern again.
  if (last_end_ && place_.position >= *last_end_) gap_ = place_.position - *last_end_;
  if (result.whole()) {
    guess_ = after(result);
    changed_.notify_all();
  }
  return result;
}

PrefetchSource::Request PrefetchSource::after(const Fetched& last) const {
  return {last.after.position + gap_, last.request.rows};
}

PrefetchSource::Fetched PrefetchSource::read(std::int64_t rows) {
  Fetched result;
  result.before = source_place();
  result.request = {result.before.position, rows};
  try {
    result.batch = source_->next(rows);
  } catch (...) {
    result.error = std::current_exception();
  }
  result.after = source_place();
  return result;
}

// Nothing when the source cannot go there: the caller's own seek, if it comes, will say why.
std::optional<PrefetchSource::Fetched> PrefetchSource::guess(const Request& request) {
  try {
    if (source_->position() != request.position) source_->seek(request.position);
    return read(request.rows);
  } catch (...) {
    return std::nullopt;
  }
}

void PrefetchSource::run() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || (guess_ && fetched_.size() < depth_); });
    if (stop_) return;
    const Request request = *guess_;
    busy_ = true;
    lock.unlock();
    std::optional<Fetched> result = guess(request);
    lock.lock();
    busy_ = false;
    if (guess_ && result) {  // else it was withdrawn meanwhile, or wrong
      guess_ = result->whole() ? std::optional(after(*result)) : std::nullopt;
      fetched_.push_back(std::move(*result));
    } else {
      guess_.reset();
    }
    changed_.notify_all();
  }
}

}  // namespace penstock::model
