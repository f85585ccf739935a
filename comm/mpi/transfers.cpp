#include "comm/mpi/transfers.h"

#include <algorithm>
#include <utility>

namespace penstock::comm::mpi {

SendOperation::SendOperation(Message message, const Channel& channel)
    : message_(std::move(message)), channel_(channel), header_(encode_header(message_)) {
  const std::size_t first = std::min(header_.size(), kHeaderBytes);
  requests_.send(channel_.headers(), header_.data(), first);
  const Lane bodies = channel_.bodies();
  if (first < header_.size()) {
    requests_.send(bodies, header_.data() + first, header_.size() - first);
  }
  for (const tensor::Tensor& tensor : message_.tensors) {
    requests_.send_synchronous(bodies, tensor.raw(), tensor.nbytes());
  }
  // The header alone would say nothing about the peer: its receive is posted ahead.
  if (message_.tensors.empty()) requests_.send_synchronous(bodies, nullptr, 0);
}

bool SendOperation::advance() {
  if (!requests_.done() || delay_.holds()) return false;
  message_.tensors.clear();
  return true;
}

std::string SendOperation::describe() const {
  return "rank " + std::to_string(channel_.peer) + " to receive this rank's " +
         std::string(name_of(channel_.kind)) + " message";
}

void Inlet::post_header() {
  const Lane lane = channel_.headers();
  PENSTOCK_MPI_CALL(MPI_Irecv(header_.data(), static_cast<int>(header_.size()), MPI_BYTE, lane.peer,
                              lane.tag, lane.comm, &request_));
}

void Inlet::post(std::shared_ptr<MpiReceive> receive) {
  if (request_ == MPI_REQUEST_NULL) post_header();
  posted_.push_back(std::move(receive));
}

void Inlet::match() {
  while (!posted_.empty()) {
    MpiReceive& next = *posted_.front();
    if (!next.begun()) {
      int arrived = 0;
      MPI_Status status;
      PENSTOCK_MPI_CALL(MPI_Test(&request_, &arrived, &status));
      if (arrived == 0) return;
      int bytes = 0;
      PENSTOCK_MPI_CALL(MPI_Get_count(&status, MPI_BYTE, &bytes));
      next.begin(std::span(header_).first(static_cast<std::size_t>(bytes)));
      post_header();
    }
    if (!next.tensors_posted()) return;
    posted_.pop_front();
  }
}

void Inlet::close() noexcept {
  posted_.clear();
  if (request_ == MPI_REQUEST_NULL) return;
  // Waiting after a cancel is local: the receive is withdrawn, or a header had come already.
  if (MPI_Cancel(&request_) == MPI_SUCCESS) MPI_Wait(&request_, MPI_STATUS_IGNORE);
}

bool MpiReceive::advance() {
  if (state_ == State::kDone) return true;
  if (state_ != State::kTensors) inlet_->match();
  if (state_ != State::kTensors || !requests_.done() || delay_.holds()) return false;
  state_ = State::kDone;
  return true;
}

std::string MpiReceive::describe() const {
  return "a message of kind " + std::string(name_of(inlet_->channel().kind)) + " from rank " +
         std::to_string(inlet_->channel().peer);
}

void MpiReceive::begin(std::span<const std::byte> first_part) {
  header_.assign(first_part.begin(), first_part.end());
  const std::size_t size = header_size(first_part);
  if (size > first_part.size()) {
    header_.resize(size);
    requests_.receive(inlet_->channel().bodies(), header_.data() + first_part.size(),
                      size - first_part.size());
  }
  state_ = State::kHeader;
}

bool MpiReceive::tensors_posted() {
  if (state_ == State::kHeader && requests_.done()) post_tensors();
  return state_ == State::kTensors || state_ == State::kDone;
}

void MpiReceive::post_tensors() {
  DecodedHeader decoded = decode_header(header_);
  header_.clear();
  message_.header = decoded.header;
  message_.needs_grad = std::move(decoded.needs_grad);
  message_.whole_shapes = std::move(decoded.whole_shapes);
  const Lane bodies = inlet_->channel().bodies();
  for (const TensorFacts& facts : decoded.tensors) {
    const tensor::Tensor tensor = tensor::Tensor::empty(allocator_, facts.shape, facts.dtype);
    message_.tensors.push_back(tensor);
    requests_.receive(bodies, tensor.raw(), tensor.nbytes());
  }
  if (decoded.tensors.empty()) requests_.receive(bodies, nullptr, 0);
  state_ = State::kTensors;
}

}  // namespace penstock::comm::mpi
